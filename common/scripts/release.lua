#!lua flags=allow-oom
-- release: a worker gives a micro-batch back, with what it has published of it.
--
-- KEYS  mb
-- ARGV  tok
--
--   REFUSED  not HELD by this token. Nothing written.
--   OK       READY; token, worker and armed dropped.
local hash = redis.call("HMGET", KEYS[1], "st", "tok")
if hash[1] ~= "HELD" or hash[2] ~= ARGV[1] then
  return "REFUSED"
end
redis.call("HSET", KEYS[1], "st", "READY")
redis.call("HDEL", KEYS[1], "tok", "wk", "armed")
return "OK"
