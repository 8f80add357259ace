-- claim: remove the first ids from some READY queues, for a batch that is about to write their records.
--
-- The first of two steps. A claimed id is in `in_process_queue` with a deadline; if its record is not written by then
-- (commit.lua), upkeep puts the id back (docs/decisions/0009).
--
-- KEYS  1 in_process_queue  sorted   id by the end of its lease
--       2 jobs              hash     id ▸ stamp, record
--       3 data              hash     id ▸ letter, body
--       4 version           string   the layout of the store and the stamp of its notice
--       5 …                 sorted   the queues to claim from, by rank, and those of all READY jobs
-- ARGV  1 deadline, ms  2 limit  3 lowest rank  4 highest rank  5 the version that the batch knows
--       6 how many ids to skip, and these ids: the batch itself has moved them
--       … sources: a queue, the queue of all READY jobs that contains it, the limit
--
-- Replies  ids, in order · their records · their bodies; or nothing, if the version has changed

-- `unpack` of Lua returns at most this many values.
local MOST = 4000
if redis.call('GET', KEYS[4]) ~= ARGV[5] then
  return {}
end
local limit, passed, at = tonumber(ARGV[2]), {}, 7 + tonumber(ARGV[6])
for n = 7, at - 1 do
  passed[ARGV[n]] = true
end

-- One Redis command for many arguments: the calls are most of the cost.
local function many(command, key, words)
  local replies = {}
  for from = 1, #words, MOST do
    local reply = redis.call(command, key, unpack(words, from, math.min(from + MOST - 1, #words)))
    for n = 1, type(reply) == 'table' and #reply or 0 do
      replies[#replies + 1] = reply[n]
    end
  end
  return replies
end

-- Reads the next page of a source; returns whether it has any ids. An id that is not in the queue of all READY jobs was
-- claimed by another process.
local function fill(source)
  while not source.is_over do
    local words = {source.order, ARGV[3], ARGV[4], 'WITHSCORES', 'LIMIT', source.skip, source.page}
    local flat = redis.call('ZRANGEBYSCORE', unpack(words))
    source.skip, source.is_over = source.skip + source.page, #flat < 2 * source.page
    local found, ids, ranks = {}, {}, {}
    for n = 1, #flat, 2 do
      found[#found + 1] = flat[n]
    end
    local still = source.order == source.all and {} or many('ZMSCORE', source.all, found)
    for n, id in ipairs(found) do
      if not passed[id] and (source.order == source.all or still[n]) then
        ids[#ids + 1], ranks[#ranks + 1] = id, tonumber(flat[2 * n])
      end
    end
    if #ids > 0 then
      source.ids, source.ranks, source.next = ids, ranks, 1
      return true
    end
  end
  return false
end

-- The sources as a heap: the one whose next id is the first is on top.
local heap, count = {}, (#ARGV - at + 1) / 3
for n = at, #ARGV, 3 do
  local most = math.min(tonumber(ARGV[n + 2]), limit)
  local source = {order = KEYS[tonumber(ARGV[n])], all = KEYS[tonumber(ARGV[n + 1])], left = most, skip = 0}
  source.page = count == 1 and most or math.min(most, math.ceil(2 * limit / count) + 8)
  if most > 0 and fill(source) then
    heap[#heap + 1] = source
  end
end

local function is_before(a, b)
  local x, y = a.ranks[a.next], b.ranks[b.next]
  return x < y or (x == y and a.ids[a.next] < b.ids[b.next])
end

local function sink(n)
  while true do
    local first, child = n, 2 * n
    for other = child, math.min(child + 1, #heap) do
      if is_before(heap[other], heap[first]) then
        first = other
      end
    end
    if first == n then
      return
    end
    heap[n], heap[first], n = heap[first], heap[n], first
  end
end

for n = math.floor(#heap / 2), 1, -1 do
  sink(n)
end

-- The claimed ids, and what to remove from which queue.
local taken, leases, gone = {}, {}, {}
local function goes(key, id)
  gone[key] = gone[key] or {}
  table.insert(gone[key], id)
end
while #taken < limit and #heap > 0 do
  local source = heap[1]
  local id = source.ids[source.next]
  taken[#taken + 1] = id
  leases[#leases + 1], leases[#leases + 2] = ARGV[1], id
  goes(source.all, id)
  if source.order ~= source.all then
    goes(source.order, id)
  end
  source.next, source.left = source.next + 1, source.left - 1
  if source.left == 0 or (source.next > #source.ids and not fill(source)) then
    heap[1] = heap[#heap]
    heap[#heap] = nil
  end
  sink(1)
end
for key, ids in pairs(gone) do
  many('ZREM', key, ids)
end
many('ZADD', KEYS[1], leases)
return {taken, many('HMGET', KEYS[2], taken), many('HMGET', KEYS[3], taken)}
