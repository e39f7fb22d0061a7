#!lua flags=allow-oom
-- publish: a worker hands over finished results. An entry in the stream and its bits in got appear together or not at all.
--
-- KEYS  info results mb
-- ARGV  mb tok mask blob lifetime_s
--
--   REFUSED  the job is sealed or done, there is no hash, it is READY or another token's. Nothing written.
--   DUP      every bit of mask is in got already. Nothing written.
--   OK       entry added, mask put into got, some positions still missing.
--   FULL     the same, none missing: now st FULL. Also the answer to a repeat, which adds nothing.
-- got and mask: bit i of a micro-batch is bit i % 8 of byte i / 8. Bits beyond n count for nothing.
local state = redis.call("HGET", KEYS[1], "state")
local hash = redis.call("HMGET", KEYS[3], "st", "tok", "got", "n")
if state == "sealed" or state == "done" or not hash[1] or hash[1] == "READY" or hash[2] ~= ARGV[2] then
  return "REFUSED"
end
local rest = hash[4] % 8
local full = string.rep("\255", (hash[4] - rest) / 8) .. (rest > 0 and string.char(2 ^ rest - 1) or "")
local bytes = {}
for i = 1, #full do
  bytes[i] = string.char(bit.bor(hash[3]:byte(i), bit.band(ARGV[3]:byte(i) or 0, full:byte(i))))
end
local got = table.concat(bytes)
if got ~= hash[3] then
  redis.call("XADD", KEYS[2], "*", "mb", ARGV[1], "z", ARGV[4])
  redis.call("EXPIRE", KEYS[2], ARGV[5], "NX")
  redis.call("HSET", KEYS[3], "got", got)
elseif got ~= full then
  return "DUP"
end
if got ~= full then
  return "OK"
end
if hash[1] ~= "FULL" then
  redis.call("HSET", KEYS[3], "st", "FULL")
end
return "FULL"
