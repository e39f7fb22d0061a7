#!lua flags=allow-oom
-- arm: a worker says that the run of a lone suspect begins. It moves beat, so that an expire decided before it misses.
--
-- KEYS  mb
-- ARGV  tok
--
--   REFUSED  not HELD by this token. Nothing written.
--   OK       armed set.
local hash = redis.call("HMGET", KEYS[1], "st", "tok")
if hash[1] ~= "HELD" or hash[2] ~= ARGV[1] then
  return "REFUSED"
end
redis.call("HSET", KEYS[1], "armed", 1)
redis.call("HINCRBY", KEYS[1], "beat", 1)
return "OK"
