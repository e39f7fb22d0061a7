#!lua flags=allow-oom
-- ask: anybody wishes a job cancelled, paused or resumed (<verb>:<nonce>[:<by>]); its collector decides.
--
-- KEYS  info
-- ARGV  want
--
--   NOJOB   no info. Nothing written.
--   DONE    the job is done. Nothing written, so that a rerun finds no wish from before.
--   CANCEL  a cancel stands there that no collector has heard (its nonce is not in info.heard), and this wish is none:
--           it would be lost. Nothing written.
--   OK      info.want set.
if redis.call("EXISTS", KEYS[1]) == 0 then
  return "NOJOB"
end
local info = redis.call("HMGET", KEYS[1], "want", "heard", "state")
if info[3] == "done" then
  return "DONE"
end
local nonce = string.match(info[1] or "", "^cancel:(%x+)")
local is_unheard = nonce and not string.find(info[2] or "", nonce, 1, true)
if is_unheard and string.sub(ARGV[1], 1, 7) ~= "cancel:" then
  return "CANCEL"
end
redis.call("HSET", KEYS[1], "want", ARGV[1])
return "OK"
