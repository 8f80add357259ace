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
-- Replies  ids · their records · their bodies · the last turn · 1 if there may be more

-- Lua takes so many values at once from a table.
local MOST = 4000
local limit, extra = tonumber(ARGV[2]), tonumber(ARGV[5])
local found, more = {}, 0

-- One command for many words: a call each is most of what it costs.
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

-- The first ids of an order, and their ranks. One that somebody has taken from the order of all goes from this
-- one too, so that it stands in nobody's way; whoever puts it back puts it into both.
local function first(order, all, page)
  while true do
    local ids, ranks, stale = {}, {}, {}
    local flat = redis.call('ZRANGEBYSCORE', order, ARGV[3], ARGV[4], 'WITHSCORES', 'LIMIT', 0, page)
    for n = 1, #flat, 2 do
      ids[#ids + 1], ranks[#ranks + 1] = flat[n], tonumber(flat[n + 1])
    end
    for n, rank in ipairs(order == all and {} or many('ZMSCORE', all, ids)) do
      if not rank then
        stale[#stale + 1] = ids[n]
      end
    end
    if #stale == 0 then
      return ids, ranks
    end
    many('ZREM', order, stale)
  end
end

for at = 6, #ARGV, 3 do
  local order, all, most = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  local page = math.min(limit, most) + extra
  local ids, ranks = first(KEYS[order], KEYS[all], page)
  if #ids == page then
    more = 1
  end
  for n, id in ipairs(ids) do
    found[#found + 1] = {id = id, rank = ranks[n], source = at, order = order, all = all, most = most}
  end
end
table.sort(found, function(a, b)
  if a.rank == b.rank then
    return a.id < b.id
  end
  return a.rank < b.rank
end)

-- What is taken, by which source, and what goes from which order.
local taken, leases, of, is_taken, gone = {}, {}, {}, {}, {}
local function goes(key, id)
  gone[key] = gone[key] or {}
  table.insert(gone[key], id)
end
for _, one in ipairs(found) do
  if #taken >= limit then
    break
  end
  if (of[one.source] or 0) < one.most and not is_taken[one.id] then
    of[one.source], is_taken[one.id] = (of[one.source] or 0) + 1, true
    taken[#taken + 1] = one.id
    leases[#leases + 1], leases[#leases + 2] = ARGV[1], one.id
    -- Whoever takes it from the order of all has it.
    goes(one.all, one.id)
    if one.order ~= one.all then
      goes(one.order, one.id)
    end
  end
end
for key, ids in pairs(gone) do
  many('ZREM', KEYS[key], ids)
end
many('ZADD', KEYS[1], leases)

local last = 0
for key = 4, 5 do
  local top = redis.call('ZREVRANGE', KEYS[key], 0, 0, 'WITHSCORES')
  last = math.max(last, tonumber(top[2] or 0))
end
return {taken, many('HMGET', KEYS[2], taken), many('HMGET', KEYS[3], taken), last, more}
