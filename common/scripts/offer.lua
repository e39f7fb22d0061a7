#!lua
-- offer: the collector puts a micro-batch up for claims. The one script that a full server refuses.
--
-- KEYS  info open mb
-- ARGV  epoch mb n got z dlv kind lifetime_s
--
--   FENCED  info.epoch is another one, or there is no info. Nothing written.
--   SAME    the hash is there already; only its number is put into open.
--   NEW     the hash is made READY, its number put into open, info.mb_high raised to it.
if redis.call("HGET", KEYS[1], "epoch") ~= ARGV[1] then
  return "FENCED"
end
redis.call("SADD", KEYS[2], ARGV[2])
redis.call("EXPIRE", KEYS[2], ARGV[8])
if redis.call("EXISTS", KEYS[3]) == 1 then
  return "SAME"
end
redis.call("HSET", KEYS[3], "st", "READY", "beat", 0, "n", ARGV[3], "got", ARGV[4], "z", ARGV[5], "dlv", ARGV[6], "kind", ARGV[7])
redis.call("EXPIRE", KEYS[3], ARGV[8])
if tonumber(redis.call("HGET", KEYS[1], "mb_high") or 0) < tonumber(ARGV[2]) then
  redis.call("HSET", KEYS[1], "mb_high", ARGV[2])
end
return "NEW"
