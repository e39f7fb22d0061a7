#!lua flags=allow-oom
-- renew: a worker says that it still works on what it holds, and hears what is no longer wanted.
--
-- KEYS  info mb...
-- ARGV  tok...    one a micro-batch, in the same order
--
-- Answers info.state (NOJOB without one), then for each micro-batch
--   =<got>   HELD by this token; beat moved.
--   !<st>    READY, FULL, or HELD by another token. Nothing written.
--   !GONE    no hash. Nothing written.
local answers = {redis.call("HGET", KEYS[1], "state") or "NOJOB"}
for i = 2, #KEYS do
  local hash = redis.call("HMGET", KEYS[i], "st", "tok", "got")
  if hash[1] == "HELD" and hash[2] == ARGV[i - 1] then
    redis.call("HINCRBY", KEYS[i], "beat", 1)
    answers[i] = "=" .. hash[3]
  else
    answers[i] = "!" .. (hash[1] or "GONE")
  end
end
return answers
