#!lua flags=allow-oom
-- note: small facts that a full server must take too: a heartbeat, a certificate of death, that a job is there.
--
-- KEYS  hash
-- ARGV  lifetime_s [field value]...
--
--   OK  the fields set; a lifetime of 0 leaves that of the key as it is.
for i = 2, #ARGV, 2 do
  redis.call("HSET", KEYS[1], ARGV[i], ARGV[i + 1])
end
if ARGV[1] ~= "0" then
  redis.call("EXPIRE", KEYS[1], ARGV[1])
end
return "OK"
