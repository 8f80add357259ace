-- claim: take the first ids of some orders out of READY, for one who is about to write their records.
--
-- The first of two steps. An id that is taken stands among those in process until a moment; if its record
-- does not follow by then (commit.lua), it is put back by whoever looks (docs/decisions/0009).
--
-- KEYS  1 in_process_queue  sorted   id by the end of its lease
--       2 jobs              hash     id ▸ record
--       3 data              hash     id ▸ body
--       4 turn_tenants      sorted   tenants by their turn
--       5 rest_tenants      sorted   the same of those who have no READY jobs
--       6 …                 sorted   orders to take from, by rank, and those of all READY jobs
-- ARGV  1 until, ms  2 limit  3 lowest rank  4 highest rank  5 how many to look at beyond those wanted
--       6 …  sources: an order, the order of all that it is part of, at most
--
-- Replies  ids, records and bodies in turn · the last turn · 1 if there may be more
local limit, extra = tonumber(ARGV[2]), tonumber(ARGV[5])
local found, more = {}, 0

-- The first ids of an order with their ranks. One that somebody has taken from the order of all goes from this
-- one too, so that it stands in nobody's way; whoever puts it back puts it into both.
local function first(order, all, page)
  while true do
    local ids = redis.call('ZRANGEBYSCORE', order, ARGV[3], ARGV[4], 'WITHSCORES', 'LIMIT', 0, page)
    local stale = false
    for n = 1, order == all and 0 or #ids, 2 do
      if not redis.call('ZSCORE', all, ids[n]) then
        redis.call('ZREM', order, ids[n])
        stale = true
      end
    end
    if not stale then
      return ids
    end
  end
end

for at = 6, #ARGV, 3 do
  local order, all, most = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  local page = math.min(limit, most) + extra
  local ids = first(KEYS[order], KEYS[all], page)
  if #ids == 2 * page then
    more = 1
  end
  for n = 1, #ids, 2 do
    found[#found + 1] = {id = ids[n], rank = tonumber(ids[n + 1]), source = at, order = order, all = all, most = most}
  end
end
table.sort(found, function(a, b)
  if a.rank == b.rank then
    return a.id < b.id
  end
  return a.rank < b.rank
end)

local taken, of = {}, {}
for _, one in ipairs(found) do
  if #taken >= limit then
    break
  end
  -- Whoever takes it from the order of all has it.
  if (of[one.source] or 0) < one.most and redis.call('ZREM', KEYS[one.all], one.id) == 1 then
    if one.order ~= one.all then
      redis.call('ZREM', KEYS[one.order], one.id)
    end
    redis.call('ZADD', KEYS[1], ARGV[1], one.id)
    of[one.source] = (of[one.source] or 0) + 1
    taken[#taken + 1] = one.id
  end
end

local rows = {}
for _, id in ipairs(taken) do
  rows[#rows + 1] = {id, redis.call('HGET', KEYS[2], id), redis.call('HGET', KEYS[3], id)}
end
local last = 0
for key = 4, 5 do
  local top = redis.call('ZREVRANGE', KEYS[key], 0, 0, 'WITHSCORES')
  last = math.max(last, tonumber(top[2] or 0))
end
return {rows, last, more}
