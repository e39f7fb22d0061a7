#!lua flags=allow-oom
-- close: the collector takes a micro-batch off the table, since all its results are in the journal or to offer it anew.
--
-- KEYS  info open mb
-- ARGV  epoch mb
--
--   FENCED  info.epoch is another one, or there is no info. Nothing written.
--   OK      hash and number gone, also if they were not there.
if redis.call("HGET", KEYS[1], "epoch") ~= ARGV[1] then
  return "FENCED"
end
redis.call("SREM", KEYS[2], ARGV[2])
redis.call("UNLINK", KEYS[3])
return "OK"
