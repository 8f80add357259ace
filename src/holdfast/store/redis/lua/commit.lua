-- commit: if nothing that the batch read has changed, write all its changes; otherwise write nothing.
--
-- This script contains no rules: the plan tells what to compare and what to write.
--
-- KEYS  1 session        string   the number of the last commit of the session
--       2 tick           string   counts commits, for processes that poll for changes
--       3 versions       hash     table ▸ the stamp of the last commit that changed it
--       4 turn           string   the number of the last turn
--       5 pairs  6 turn_tenants  7 rest_tenants  8 rest_pairs     see pairs.lua
--       9 version        string   the layout of the store and the stamp of its notice
--      10 …              all other keys of the plan, which names them by position
-- ARGV  1 number, "": only check  2 the number before, "" for none  3 how long the session is kept, ms
--       4 channel  5 the message to publish there at the end, "": none  6 the version that the batch knows
--       7 the plan (MessagePack): the number of columns, the length of each, then operations of four numbers: an
--         operation code, the position of a key, and two columns (0: none). Checks come first
--       8 … the values of all columns
--
--   1 begins  fields stamps   values of a hash begin with these     2 absent  fields  there are no such values
--   3 size    count           a sorted set has this many members
--   4 HSET  5 ZADD  a b       the command with values of both columns in turn; a single score is used for all
--   6 HDEL  7 ZREM  values    the command with these values
--   8 count   fields differences   add to counts; a count of zero is deleted
--   9 table   name stamp           the rows of a table were changed
--  10 ready   names tasks          the queue of a pair was changed: pair, tenant, task. `tasks` is not a column but
--                                  the position of the tenant's tasks; the mock queue is the key after that
--  11 served  names                a pair had its turn: pair, tenant, task; the key is that of its tenant's tasks
--  12 sweep   limits               forget pairs: how often, in turns; not served for how many turns; how many at
--                                  once; the number of turns in this batch
--  13 set     value                the value of a string
--
-- Replies  OK · DONE: it was committed before · CUT: the session was closed by settle.lua
--          VERSION: the layout or the notice has changed · or what else has changed

-- `unpack` of Lua returns at most this many values.
local MOST = 4000

local number = ARGV[1]
-- One call: the second costs as much as all the rest of this check.
local stored = redis.call('MGET', KEYS[1], KEYS[9])
if number ~= '' then
  local done = stored[1] or ''
  if done == number then
    return 'DONE'
  elseif done ~= ARGV[2] then
    return 'CUT'
  end
end
if stored[2] ~= ARGV[6] then
  return 'VERSION'
end

-- For each column: the position before its first value, and its length.
local plan = cmsgpack.unpack(ARGV[7])
local columns, before, size, last = plan[1], {}, {}, 7
for n = 1, columns do
  before[n], size[n] = last, plan[n + 1]
  last = last + plan[n + 1]
end

local call = redis.call

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

-- The first of these fields whose value does not begin with its stamp (`b`) or, without stamps, exists.
local function changed_field(key, a, b)
  if size[a] == 1 and not b then
    return call('HEXISTS', key, word(a, 1)) == 1 and key .. ' ' .. word(a, 1)
  end
  for from = 1, size[a], MOST do
    local to = math.min(from + MOST - 1, size[a])
    local values = call('HMGET', key, unpack(ARGV, before[a] + from, before[a] + to))
    for n = from, to do
      local value, stamp = values[n - from + 1], b and word(b, n)
      if not b and value or b and not (value and string.sub(value, 1, #stamp) == stamp) then
        return key .. ' ' .. word(a, n)
      end
    end
  end
end

local function count(key, a, b)
  for n = 1, size[a] do
    if call('HINCRBY', key, word(a, n), word(b, n)) == 0 then
      call('HDEL', key, word(a, n))
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

local function note_ready(key, a, tasks)
  local pair, tenant, task = word(a, 1), word(a, 2), word(a, 3)
  follow(key, KEYS[tasks + 1], KEYS[tasks], pair, tenant, task, KEYS[5], KEYS[6], KEYS[7], KEYS[8])
end

local function serve(key, a)
  local pair, tenant, task = word(a, 1), word(a, 2), word(a, 3)
  local turn = call('INCR', KEYS[4])
  if call('ZSCORE', key, task) then
    call('ZADD', key, turn, task)
    call('ZADD', KEYS[5], turn, pair)
  else
    call('ZADD', KEYS[8], turn, pair)
  end
  call('ZADD', call('ZSCORE', KEYS[6], tenant) and KEYS[6] or KEYS[7], turn, tenant)
end

local function sweep(a)
  local every, remembered, at_once = tonumber(word(a, 1)), tonumber(word(a, 2)), word(a, 3)
  local turn = tonumber(call('GET', KEYS[4]))
  if math.floor((turn - tonumber(word(a, 4))) / every) == math.floor(turn / every) then
    return
  end
  for key = 7, 8 do
    local old = call('ZRANGEBYSCORE', KEYS[key], '-inf', '(' .. turn - remembered, 'LIMIT', 0, at_once)
    if #old > 0 then
      call('ZREM', KEYS[key], unpack(old))
    end
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
    count(key, a, b)
  elseif verb == 9 then
    note_table(key, a, b)
  elseif verb == 10 then
    note_ready(key, a, b)
  elseif verb == 11 then
    serve(key, a)
  elseif verb == 12 then
    sweep(a)
  else
    call('SET', key, word(a, 1))
  end
end

if number ~= '' then
  call('SET', KEYS[1], number, 'PX', ARGV[3])
  call('INCR', KEYS[2])
  if ARGV[5] ~= '' then
    -- Only a hint: without the right to publish, the commit is still valid.
    redis.pcall('PUBLISH', ARGV[4], ARGV[5])
  end
end
return 'OK'
