#!lua flags=allow-oom,no-writes
-- look: everything the janitor decides on. It writes nothing, and alone builds key names (prefix .. "mb:" .. number).
--
-- KEYS  info open results
-- ARGV  prefix count [mb]...
--
-- Without numbers (the first slice) answers
--   info as fields and values, length of results, its last id ever ("" without a stream), rows, rest
-- where rows describe the first `count` members of open and rest holds the other numbers, to be asked for in later calls.
-- With numbers (a later slice) answers rows of those alone.
-- A row is mb, st, tok, beat, got, armed, wk. A micro-batch without a hash has none: it closed between two slices.
local function rows_of(numbers, from, to)
  local rows = {}
  for i = from, to do
    local row = redis.call("HMGET", ARGV[1] .. "mb:" .. numbers[i], "st", "tok", "beat", "got", "armed", "wk")
    if row[1] then
      table.insert(row, 1, numbers[i])
      rows[#rows + 1] = row
    end
  end
  return rows
end
if #ARGV > 2 then
  return rows_of(ARGV, 3, #ARGV)
end
local last_id = ""
if redis.call("EXISTS", KEYS[3]) == 1 then
  local facts = redis.call("XINFO", "STREAM", KEYS[3])
  for i = 1, #facts, 2 do
    if facts[i] == "last-generated-id" then
      last_id = facts[i + 1]
    end
  end
end
local open = redis.call("SMEMBERS", KEYS[2])
local count = math.min(tonumber(ARGV[2]), #open)
local rest = {}
for i = count + 1, #open do
  rest[#rest + 1] = open[i]
end
return {redis.call("HGETALL", KEYS[1]), redis.call("XLEN", KEYS[3]), last_id, rows_of(open, 1, count), rest}
