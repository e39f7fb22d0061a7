#!lua flags=allow-oom
-- expire: the collector takes a micro-batch from a holder it believes lost, unless that one moved since it was looked at.
--
-- KEYS  info mb
-- ARGV  epoch tok beat    token and beat as seen
--
--   FENCED  info.epoch is another one, or there is no info. Nothing written.
--   MOVED   not HELD with exactly this token and beat. Nothing written.
--   OK      READY, dlv one more; token, worker and armed dropped.
if redis.call("HGET", KEYS[1], "epoch") ~= ARGV[1] then
  return "FENCED"
end
local hash = redis.call("HMGET", KEYS[2], "st", "tok", "beat")
if hash[1] ~= "HELD" or hash[2] ~= ARGV[2] or hash[3] ~= ARGV[3] then
  return "MOVED"
end
redis.call("HSET", KEYS[2], "st", "READY")
redis.call("HINCRBY", KEYS[2], "dlv", 1)
redis.call("HDEL", KEYS[2], "tok", "wk", "armed")
return "OK"
