#!lua flags=allow-oom
-- mark: the collector says which positions have a result in the journal already, from whichever micro-batch.
--
-- KEYS  info mb
-- ARGV  epoch mask
--
--   FENCED  info.epoch is another one, or there is no info. Nothing written.
--   GONE    no hash. Nothing written.
--   OK      mask put into got; st stays as it is.
if redis.call("HGET", KEYS[1], "epoch") ~= ARGV[1] then
  return "FENCED"
end
local hash = redis.call("HMGET", KEYS[2], "got", "n")
if not hash[1] then
  return "GONE"
end
local rest = hash[2] % 8
local full = string.rep("\255", (hash[2] - rest) / 8) .. (rest > 0 and string.char(2 ^ rest - 1) or "")
local bytes = {}
for i = 1, #full do
  bytes[i] = string.char(bit.bor(hash[1]:byte(i), bit.band(ARGV[2]:byte(i) or 0, full:byte(i))))
end
redis.call("HSET", KEYS[2], "got", table.concat(bytes))
return "OK"
