#!lua flags=allow-oom
-- claim: a worker takes a micro-batch under its token. The same call again gives the same answer.
--
-- KEYS  info mb
-- ARGV  tok wk model digest
--
--   NOJOB          no info, or an info without a state. Nothing written.
--   <info.state>   when it is not open. Nothing written.
--   OTHER_MODEL    this job has pinned another digest for the model. Nothing written. An empty pin stands for any.
--   GONE           no hash. Nothing written.
--   BUSY           FULL, or HELD by another token. Nothing written.
--   GO z got dlv   it was READY and is now HELD (beat moved; the model's digest pinned), or was HELD by this
--                  token already (nothing written). Where info.mixed is set the pin is the empty one.
local pin = "digest:" .. ARGV[3]
local info = redis.call("HMGET", KEYS[1], "state", pin, "mixed")
if info[1] ~= "open" then
  return {info[1] or "NOJOB"}
end
if info[2] and info[2] ~= "" and info[2] ~= ARGV[4] then
  return {"OTHER_MODEL"}
end
local hash = redis.call("HMGET", KEYS[2], "st", "tok", "z", "got", "dlv")
if not hash[1] then
  return {"GONE"}
end
if hash[1] == "READY" then
  redis.call("HSET", KEYS[2], "st", "HELD", "tok", ARGV[1], "wk", ARGV[2])
  redis.call("HINCRBY", KEYS[2], "beat", 1)
  if not info[2] then
    redis.call("HSET", KEYS[1], pin, info[3] and "" or ARGV[4])
  end
elseif hash[1] ~= "HELD" or hash[2] ~= ARGV[1] then
  return {"BUSY"}
end
return {"GO", hash[3], hash[4], hash[5]}
