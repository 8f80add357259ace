-- commit: if all that was read is still so, write everything that was decided; else nothing.
--
-- No rule is here: what is compared and what is written was decided before, and comes as a plan.
--
-- KEYS  1 session        string   the number of the last commit of the session
--       2 tick           string   counts commits, for processes that look whether anything has changed
--       3 versions       hash     table ▸ the stamp of the last commit that changed it
--       4 turn           string   the last turn that a pair had
--       5 pairs  6 turn_tenants  7 rest_tenants  8 rest_pairs     see pairs.lua
--       9 …              whatever else the plan names, by its position here
-- ARGV  1 number, "": only check  2 the number before, "" for none  3 how long the session is remembered, ms
--       4 channel  5 what is published there once all is done, "": nothing
--       6 how many columns, then of each how many words, and these
--       … the plan: operations of four words, a verb, a key and two columns (0: none); checks come first
--
--   begins fields stamps   values of a hash begin with these    absent fields      there are no such values
--   size count             a sorted set has so many members
--   ZREM HDEL words        the command with these words         ZADD HSET a b      … with words of both in turn,
--                                                               where one score may stand for all
--   count fields differences   add to counts; what comes to zero goes
--   table name stamp           the rows of a table were changed
--   ready names                the queue of a pair was changed: its mock queue and its tasks (positions), pair,
--                              tenant, task
--   served names               a pair had its turn: pair, tenant, task; the key is that of its tasks
--   sweep limits               forget pairs: every so many turns, who was not served for so many, so many at
--                              once, how many turns there were
--
-- Replies  OK · DONE, it was committed before · CUT, the session was cut off · or the name of what has changed

-- Lua takes so many values at once from a table.
local MOST = 4000

local number = ARGV[1]
if number ~= '' then
  local last = redis.call('GET', KEYS[1]) or ''
  if last == number then
    return 'DONE'
  elseif last ~= ARGV[2] then
    return 'CUT'
  end
end

-- Of each column the position before its first word, and how many there are.
local before, size, at = {}, {}, 7
for n = 1, tonumber(ARGV[6]) do
  before[n], size[n] = at, tonumber(ARGV[at])
  at = at + 1 + size[n]
end

local function word(column, n)
  return ARGV[before[column] + n]
end

-- Calls a command with the words of a column.
local function listed(command, key, a)
  if size[a] == 1 then
    return redis.call(command, key, ARGV[before[a] + 1])
  end
  for from = 1, size[a], MOST do
    local to = math.min(from + MOST - 1, size[a])
    redis.call(command, key, unpack(ARGV, before[a] + from, before[a] + to))
  end
end

-- Calls a command with the words of two columns in turn.
local function paired(command, key, a, b)
  if size[b] == 1 then
    return redis.call(command, key, ARGV[before[a] + 1], ARGV[before[b] + 1])
  end
  local step = size[a] == 1 and 0 or 1
  for from = 1, size[b], MOST / 2 do
    local words, count = {}, 0
    for n = from, math.min(from + MOST / 2 - 1, size[b]) do
      words[count + 1] = ARGV[before[a] + 1 + step * (n - 1)]
      words[count + 2] = ARGV[before[b] + n]
      count = count + 2
    end
    redis.call(command, key, unpack(words))
  end
end

-- The first of these fields for which a test of its value fails.
local function failing(key, a, holds)
  for from = 1, size[a], MOST do
    local to = math.min(from + MOST - 1, size[a])
    local values = redis.call('HMGET', key, unpack(ARGV, before[a] + from, before[a] + to))
    for n = from, to do
      if not holds(values[n - from + 1], n) then
        return key .. ' ' .. word(a, n)
      end
    end
  end
end

local verbs = {}

function verbs.begins(key, a, b)
  return failing(key, a, function(value, n)
    local stamp = word(b, n)
    return value and string.sub(value, 1, #stamp) == stamp
  end)
end

function verbs.absent(key, a)
  return failing(key, a, function(value)
    return not value
  end)
end

function verbs.size(key, a)
  if redis.call('ZCARD', key) ~= tonumber(word(a, 1)) then
    return key
  end
end

function verbs.count(key, a, b)
  for n = 1, size[a] do
    if redis.call('HINCRBY', key, word(a, n), word(b, n)) == 0 then
      redis.call('HDEL', key, word(a, n))
    end
  end
end

function verbs.table(key, a, b)
  if redis.call('EXISTS', key) == 1 then
    redis.call('HSET', KEYS[3], word(a, 1), word(b, 1))
  else
    redis.call('HDEL', KEYS[3], word(a, 1))
  end
end

function verbs.ready(key, a)
  local mock_queue, tasks = KEYS[tonumber(word(a, 1))], KEYS[tonumber(word(a, 2))]
  local pair, tenant, task = word(a, 3), word(a, 4), word(a, 5)
  follow(key, mock_queue, tasks, pair, tenant, task, KEYS[5], KEYS[6], KEYS[7], KEYS[8])
end

function verbs.served(key, a)
  local pair, tenant, task = word(a, 1), word(a, 2), word(a, 3)
  local turn = redis.call('INCR', KEYS[4])
  if redis.call('ZSCORE', key, task) then
    redis.call('ZADD', key, turn, task)
    redis.call('ZADD', KEYS[5], turn, pair)
  else
    redis.call('ZADD', KEYS[8], turn, pair)
  end
  redis.call('ZADD', redis.call('ZSCORE', KEYS[6], tenant) and KEYS[6] or KEYS[7], turn, tenant)
end

function verbs.sweep(_, a)
  local every, remembered, at_once = tonumber(word(a, 1)), tonumber(word(a, 2)), word(a, 3)
  local last = tonumber(redis.call('GET', KEYS[4]))
  if math.floor((last - tonumber(word(a, 4))) / every) == math.floor(last / every) then
    return
  end
  for key = 7, 8 do
    local old = redis.call('ZRANGEBYSCORE', KEYS[key], '-inf', '(' .. last - remembered, 'LIMIT', 0, at_once)
    if #old > 0 then
      redis.call('ZREM', KEYS[key], unpack(old))
    end
  end
end

for from = at, #ARGV, 4 do
  local verb, key = ARGV[from], KEYS[tonumber(ARGV[from + 1])]
  local a, b = tonumber(ARGV[from + 2]), tonumber(ARGV[from + 3])
  if verbs[verb] then
    -- Only a check replies, and no check follows a write.
    local changed = verbs[verb](key, a, b)
    if changed then
      return changed
    end
  elseif b > 0 then
    paired(verb, key, a, b)
  else
    listed(verb, key, a)
  end
end

if number ~= '' then
  redis.call('SET', KEYS[1], number, 'PX', ARGV[3])
  redis.call('INCR', KEYS[2])
  if ARGV[5] ~= '' then
    -- A hint: a user without the right to publish has committed all the same.
    redis.pcall('PUBLISH', ARGV[4], ARGV[5])
  end
end
return 'OK'
