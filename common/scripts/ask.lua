#!lua flags=allow-oom
-- ask: anybody wishes a job cancelled, paused or resumed; its collector decides.
--
-- KEYS  info
-- ARGV  want
--
--   NOJOB  no info. Nothing written.
--   OK     info.want set.
if redis.call("EXISTS", KEYS[1]) == 0 then
  return "NOJOB"
end
redis.call("HSET", KEYS[1], "want", ARGV[1])
return "OK"
