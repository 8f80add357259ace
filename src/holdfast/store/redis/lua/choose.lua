-- choose: the common first part of claim.lua and lease.lua: the first ids of some queues.

-- `unpack` of Lua returns at most this many values.
local MOST = 4000

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
local function fill(source, low, high, passed)
  while not source.is_over do
    local words = {source.order, low, high, 'WITHSCORES', 'LIMIT', source.skip, source.page}
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

local function is_before(a, b)
  local x, y = a.ranks[a.next], b.ranks[b.next]
  return x < y or (x == y and a.ids[a.next] < b.ids[b.next])
end

-- Moves an item of a heap down until it comes before those below it.
local function sink(heap, n)
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

-- The first ids of some sources by (rank, id), and the source of each. A source has a queue (`order`), the queue of all
-- READY jobs that contains it (`all`), and the most ids to choose.
local function choose(sources, limit, low, high, passed)
  -- A heap: the source whose next id is the first is on top.
  local heap = {}
  for _, source in ipairs(sources) do
    local most = math.min(source.most, limit)
    source.left, source.skip = most, 0
    source.page = #sources == 1 and most or math.min(most, math.ceil(2 * limit / #sources) + 8)
    if most > 0 and fill(source, low, high, passed) then
      heap[#heap + 1] = source
    end
  end
  for n = math.floor(#heap / 2), 1, -1 do
    sink(heap, n)
  end
  local chosen, from = {}, {}
  while #chosen < limit and #heap > 0 do
    local source = heap[1]
    chosen[#chosen + 1], from[#from + 1] = source.ids[source.next], source
    source.next, source.left = source.next + 1, source.left - 1
    if source.left == 0 or (source.next > #source.ids and not fill(source, low, high, passed)) then
      heap[1] = heap[#heap]
      heap[#heap] = nil
    end
    sink(heap, 1)
  end
  return chosen, from
end

-- Moves the first `count` chosen ids from their queues to that of the running jobs, with the end of the lease.
local function take(chosen, from, count, in_process, until_ms)
  local leases, gone = {}, {}
  for n = 1, count do
    leases[2 * n - 1], leases[2 * n] = until_ms, chosen[n]
    local source = from[n]
    for _, key in ipairs(source.order == source.all and {source.all} or {source.all, source.order}) do
      gone[key] = gone[key] or {}
      table.insert(gone[key], chosen[n])
    end
  end
  for key, ids in pairs(gone) do
    many('ZREM', key, ids)
  end
  many('ZADD', in_process, leases)
end

