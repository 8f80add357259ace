-- commit: if all that was read is still so, write everything that was decided; else nothing.
--
-- No rule is here: what is compared and what is written was decided before, and comes as a plan.
--
-- KEYS  1 lane             string   the number of the last commit of the one who commits
--       2 tick             string   counts commits, for those who look whether anything has changed
--       3 ready_counts     hash     lane ▸ how many of its jobs are READY, as counted
--       4 turn_tenants     sorted   tenants with READY jobs by their turn
--       5 rest_tenants     sorted   those without, who are remembered
--       6 rest_lanes       sorted   the same of lanes
--       7 jobs             hash     id ▸ stamp, record
--       8 archive          hash     the same of those in the archive
--       9 data             hash     id ▸ body
--      10 …                whatever else the plan names, by its place here
-- ARGV  1 number  2 the number before, "" for none  3 how long the lane is remembered, ms  4 1: only look
--       5 channel  6 what is said there once all is done, "": nothing
--       7 … the plan: of each part how many there are, and then these, with how many words they have
--
--   checks   sort key count fields… expected…   sort 1: values begin with what is expected · 2: are equal to it ·
--                                               3: are not there, and nothing is expected ·
--                                               4: an order has as many members as expected, of one field ""
--   staged   from to                            a body that was written before, and now belongs to somebody
--   births   orders count (order rank)… ids… records… bodies…   jobs that come, if there are none with their ids
--   gone     key                                that is to go
--   writes   command key count words…
--   tallies  hash roster count (field difference)…   what comes to zero goes, from the roster (0: none) too
--   lanes    lane task tasks turn               that were served
--   tenants  tenant turn                        likewise
--   turns    lane tenant task tasks difference  of READY jobs
--
-- Replies  OK · DONE, it was committed before · LANE, somebody has cut this lane off · or what has changed

-- Lua takes so many values at once from a table.
local MOST = 4000

local only_look = ARGV[4] == '1'
local number = redis.call('GET', KEYS[1])
if not only_look and number == ARGV[1] then
  return 'DONE'
end
if not only_look and (number or '') ~= ARGV[2] then
  return 'LANE'
end

local at = 6
local function word()
  at = at + 1
  return ARGV[at]
end
local function count()
  return tonumber(word())
end
local function key()
  return KEYS[count()]
end

local function is_so(sort, value, expected)
  if sort == 3 then
    return value == false
  end
  if sort == 1 and value then
    return string.sub(value, 1, #expected) == expected
  end
  return value == expected
end

-- Writes jobs that come together: their records and bodies, and in which orders they stand.
local function bear(at, orders, from, born)
  for first = 1, born, MOST / 2 do
    local last = math.min(first + MOST / 2 - 1, born)
    local records, bodies = {}, {}
    for n = first, last do
      local id = ARGV[from + n]
      records[#records + 1], bodies[#bodies + 1] = id, id
      records[#records + 1], bodies[#bodies + 1] = ARGV[from + born + n], ARGV[from + 2 * born + n]
    end
    redis.call('HSET', KEYS[7], unpack(records))
    redis.call('HSET', KEYS[9], unpack(bodies))
    for order = at + 1, at + 2 * orders, 2 do
      local ranks = {}
      for n = first, last do
        ranks[#ranks + 1] = ARGV[order + 1]
        ranks[#ranks + 1] = ARGV[from + n]
      end
      redis.call('ZADD', KEYS[tonumber(ARGV[order])], unpack(ranks))
    end
  end
end

for _ = 1, count() do
  local sort, table, fields = count(), key(), count()
  if sort == 4 and redis.call('ZCARD', table) ~= tonumber(ARGV[at + 2]) then
    return table
  end
  for from = 1, sort == 4 and 0 or fields, MOST do
    local to = math.min(from + MOST - 1, fields)
    local values = redis.call('HMGET', table, unpack(ARGV, at + from, at + to))
    for n = from, to do
      if not is_so(sort, values[n - from + 1], ARGV[at + fields + n]) then
        return table .. ' ' .. ARGV[at + n]
      end
    end
  end
  at = at + (sort == 3 and fields or 2 * fields)
end
if only_look then
  return 'OK'
end

local staged = {}
for n = 1, count() do
  staged[n] = {key(), key()}
  if redis.call('EXISTS', staged[n][1]) == 0 then
    return staged[n][1]
  end
end
local births = {}
for n = 1, count() do
  local orders, born = count(), count()
  local from = at + 2 * orders
  births[n] = {at, orders, from, born}
  for first = 1, born, MOST do
    local last = math.min(first + MOST - 1, born)
    for table = 7, 8 do
      for id, value in ipairs(redis.call('HMGET', KEYS[table], unpack(ARGV, from + first, from + last))) do
        if value then
          return KEYS[table] .. ' ' .. ARGV[from + first + id - 1]
        end
      end
    end
  end
  at = from + 3 * born
end
-- From here on nothing can fail.
for _, one in ipairs(births) do
  bear(unpack(one))
end
for _ = 1, count() do
  redis.call('UNLINK', key())
end
for _, one in ipairs(staged) do
  redis.call('RENAME', one[1], one[2])
  redis.call('PERSIST', one[2])
end
for _ = 1, count() do
  local command, table, words = word(), key(), count()
  for from = 1, words, MOST do
    redis.call(command, table, unpack(ARGV, at + from, at + math.min(from + MOST - 1, words)))
  end
  at = at + words
end
for _ = 1, count() do
  local hash, roster, changes = key(), key(), count()
  for _ = 1, changes do
    local field, difference = word(), count()
    local sum = redis.call('HINCRBY', hash, field, difference)
    if sum == 0 then
      redis.call('HDEL', hash, field)
      if roster then
        redis.call('ZREM', roster, field)
      end
    elseif roster and sum == difference then
      redis.call('ZADD', roster, 0, field)
    end
  end
end

-- Moves a name from one order to another, with the turn that it had.
local function move(from, name, to, name_there)
  local turn = redis.call('ZSCORE', from, name)
  redis.call('ZREM', from, name)
  redis.call('ZADD', to, turn or 0, name_there)
end

for _ = 1, count() do
  local lane, task, tasks, turn = word(), word(), key(), word()
  if redis.call('ZSCORE', tasks, task) then
    redis.call('ZADD', tasks, turn, task)
  else
    redis.call('ZADD', KEYS[6], turn, lane)
  end
end
for _ = 1, count() do
  local tenant, turn = word(), word()
  redis.call('ZADD', redis.call('ZSCORE', KEYS[4], tenant) and KEYS[4] or KEYS[5], turn, tenant)
end
for _ = 1, count() do
  local lane, tenant, task, tasks, difference = word(), word(), word(), key(), count()
  local ready = redis.call('HINCRBY', KEYS[3], lane, difference)
  local before = ready - difference
  if ready == 0 then
    redis.call('HDEL', KEYS[3], lane)
  end
  if ready > 0 and before <= 0 then
    move(KEYS[6], lane, tasks, task)
    if not redis.call('ZSCORE', KEYS[4], tenant) then
      move(KEYS[5], tenant, KEYS[4], tenant)
    end
  elseif ready <= 0 and before > 0 then
    move(tasks, task, KEYS[6], lane)
    if redis.call('EXISTS', tasks) == 0 then
      move(KEYS[4], tenant, KEYS[5], tenant)
    end
  end
end

redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3])
redis.call('INCR', KEYS[2])
if ARGV[6] ~= '' then
  -- A hint: one who may not speak there has committed all the same.
  redis.pcall('PUBLISH', ARGV[5], ARGV[6])
end
return 'OK'
