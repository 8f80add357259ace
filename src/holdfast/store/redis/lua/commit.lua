-- commit: if nothing that the batch read has changed, write all its changes; otherwise write nothing.
--
-- This script contains no rules: the plan tells what to compare and what to write.
--
-- Begins with done.lua.
--
-- KEYS  1 marks     list     the stamps of the last commits, the latest first
--       2 version   string   the layout of the store and the stamp of its notice
--       3 versions  hash     table ▸ the stamp of the last commit that changed it
--       4 pairs     sorted   the pairs with READY jobs
--       5 jobs      hash     id ▸ stamp, record, data
--       6 …         all other keys of the plan, which names them by position
-- ARGV  1 the stamp, "": only check  2 the message to publish at the end, "": none
--       3 the version that the batch knows
--       4 the plan (MessagePack): the number of columns, the length of each, then operations of four numbers: an
--         operation code, the position of a key, and two columns (0: none). Checks come first
--       5 … the values of all columns
--
--   1 begins  fields stamps   values of a hash begin with these     2 absent  fields  there are no such values
--   3 size    count           a sorted set has this many members
--   4 HSET  5 ZADD  a b       the command with values of both columns in turn; a single score is used for all
--   6 HDEL  7 ZREM  values    the command with these values
--   8 count   fields differences   add to counts; a count of zero is deleted
--   9 table   name stamp           the rows of a table were changed
--  10 set     value                the value of a string
--  11 keep    ids heads            values of jobs, with the data that they have; the key is `jobs` or `archive`
--  12 data    ids bodies           the data in values of jobs; the key is `archive`, for those that are not live
--
-- Replies  OK · VERSION: the layout or the notice has changed · or what else has changed

-- `unpack` of Lua returns at most this many values.
local MOST = 4000

local call, stamp = redis.call, ARGV[1]
if call('GET', KEYS[2]) ~= ARGV[3] then
  return 'VERSION'
end

-- For each column: the position before its first value, and its length.
local plan = cmsgpack.unpack(ARGV[4])
local columns, before, size, last = plan[1], {}, {}, 4
for n = 1, columns do
  before[n], size[n] = last, plan[n + 1]
  last = last + plan[n + 1]
end

local function word(column, n)
  return ARGV[before[column] + n]
end

-- Calls a command with the values of a column.
local function listed(command, key, a)
  if size[a] == 1 then
    return call(command, key, ARGV[before[a] + 1])
  end
  for from = 1, size[a], MOST do
    local to = math.min(from + MOST - 1, size[a])
    call(command, key, unpack(ARGV, before[a] + from, before[a] + to))
  end
end

-- Calls a command with the values of two columns in turn.
local function paired(command, key, a, b)
  if size[b] == 1 then
    return call(command, key, ARGV[before[a] + 1], ARGV[before[b] + 1])
  end
  local step = size[a] == 1 and 0 or 1
  for from = 1, size[b], MOST / 2 do
    local words, count = {}, 0
    for n = from, math.min(from + MOST / 2 - 1, size[b]) do
      words[count + 1] = ARGV[before[a] + 1 + step * (n - 1)]
      words[count + 2] = ARGV[before[b] + n]
      count = count + 2
    end
    call(command, key, unpack(words))
  end
end

-- The values of jobs that were read.
local known = {}

-- The first of these fields whose value does not begin with its stamp (`b`) or, without stamps, exists.
local function changed_field(key, a, b)
  if size[a] == 1 and not b then
    return call('HEXISTS', key, word(a, 1)) == 1 and key .. ' ' .. word(a, 1)
  end
  for from = 1, size[a], MOST do
    local to = math.min(from + MOST - 1, size[a])
    local values = call('HMGET', key, unpack(ARGV, before[a] + from, before[a] + to))
    for n = from, to do
      local value, first = values[n - from + 1], b and word(b, n)
      if not b and value or b and not (value and string.sub(value, 1, #first) == first) then
        return key .. ' ' .. word(a, n)
      end
      if key == KEYS[5] then
        known[word(a, n)] = value
      end
    end
  end
end

-- The position after the record in the value of a job.
local function behind(value)
  return (string.find(value, '\0', 13, true) or #value) + 1
end

-- The data in the value of a job, behind the longest lease with which it starts plainly.
local function data_in(value)
  local at = string.find(value, '%D', behind(value))
  return at and string.sub(value, at) or ''
end

local function keep(key, a, b)
  for from = 1, size[a], MOST / 2 do
    local words, number = {}, 0
    for n = from, math.min(from + MOST / 2 - 1, size[a]) do
      local id = word(a, n)
      words[number + 1] = id
      words[number + 2] = word(b, n) .. data_in(known[id] or call('HGET', KEYS[5], id) or '')
      number = number + 2
    end
    call('HSET', key, unpack(words))
  end
end

local function put_data(archive, a, b)
  for n = 1, size[a] do
    local id = word(a, n)
    for _, key in ipairs({KEYS[5], archive}) do
      local value = call('HGET', key, id)
      if value then
        local at = behind(value)
        call('HSET', key, id, string.sub(value, 1, at - 1) .. string.match(value, '^%d*', at) .. word(b, n))
      end
    end
  end
end

local function note_table(key, a, b)
  if call('EXISTS', key) == 1 then
    call('HSET', KEYS[3], word(a, 1), word(b, 1))
  else
    call('HDEL', KEYS[3], word(a, 1))
  end
end

for at = columns + 2, #plan, 4 do
  local verb, key, a, b = plan[at], KEYS[plan[at + 1]], plan[at + 2], plan[at + 3]
  if verb <= 3 then
    local changed
    if verb == 3 then
      changed = call('ZCARD', key) ~= tonumber(word(a, 1)) and key
    else
      changed = changed_field(key, a, verb == 1 and b)
    end
    if changed then
      return changed
    end
  elseif verb <= 5 then
    paired(verb == 4 and 'HSET' or 'ZADD', key, a, b)
  elseif verb <= 7 then
    listed(verb == 6 and 'HDEL' or 'ZREM', key, a)
  elseif verb == 8 then
    for n = 1, size[a] do
      count(key, KEYS[4], word(a, n), word(b, n))
    end
  elseif verb == 9 then
    note_table(key, a, b)
  elseif verb == 10 then
    call('SET', key, word(a, 1))
  elseif verb == 11 then
    keep(key, a, b)
  else
    put_data(key, a, b)
  end
end

if stamp ~= '' then
  done(KEYS[1], stamp, ARGV[2])
end
return 'OK'
