#!lua flags=allow-oom
-- own: the collector takes a job, or writes what it says of the job it has taken.
--
-- KEYS  info
-- ARGV  epoch state mb_high manifest lifetime_s [field value]...
--
-- With a manifest (take):
--   OLD   info.epoch or info.mb_high is higher: the caller's journal is an old copy. Nothing written.
--   OK    epoch, state, mb_high, manifest and the fields set. The same epoch again is fine.
-- With an empty manifest (amend; mb_high is ignored, an empty state stays as it is):
--   OLD   info is gone or has another epoch. Nothing written, so that a late call never makes half a job.
--   OK    state and the fields set.
-- OK also sets the lifetime of info.
local info = redis.call("HMGET", KEYS[1], "epoch", "mb_high")
if ARGV[4] == "" then
  if info[1] ~= ARGV[1] then
    return "OLD"
  end
else
  if tonumber(info[1] or 0) > tonumber(ARGV[1]) or tonumber(info[2] or 0) > tonumber(ARGV[3]) then
    return "OLD"
  end
  redis.call("HSET", KEYS[1], "epoch", ARGV[1], "mb_high", ARGV[3], "manifest", ARGV[4])
end
if ARGV[2] ~= "" then
  redis.call("HSET", KEYS[1], "state", ARGV[2])
end
for i = 6, #ARGV, 2 do
  redis.call("HSET", KEYS[1], ARGV[i], ARGV[i + 1])
end
redis.call("EXPIRE", KEYS[1], ARGV[5])
return "OK"
