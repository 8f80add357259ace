-- take: as claim.lua, of ids that were chosen before; those that somebody else has are passed by.
--
-- KEYS  1 in_process_queue  sorted   id by the end of its lease
--       2 jobs              hash     id ▸ record
--       3 data              hash     id ▸ body
--       4 turn_tenants      sorted   tenants by their turn
--       5 rest_tenants      sorted   the same of those who have no READY jobs
--       6 …                 sorted   the worker queues of these ids, and the orders of all READY jobs
-- ARGV  1 until, ms  2 limit  3 …  id, its queue, the order of all that it is part of
--
-- Replies  as claim.lua
local taken, records, bodies = {}, {}, {}
for at = 3, #ARGV, 3 do
  if #taken >= tonumber(ARGV[2]) then
    break
  end
  local id, queue, all = ARGV[at], KEYS[tonumber(ARGV[at + 1])], KEYS[tonumber(ARGV[at + 2])]
  if redis.call('ZREM', all, id) == 1 then
    redis.call('ZREM', queue, id)
    redis.call('ZADD', KEYS[1], ARGV[1], id)
    local n = #taken + 1
    taken[n], records[n], bodies[n] = id, redis.call('HGET', KEYS[2], id), redis.call('HGET', KEYS[3], id)
  end
end
local last = 0
for key = 4, 5 do
  local top = redis.call('ZREVRANGE', KEYS[key], 0, 0, 'WITHSCORES')
  last = math.max(last, tonumber(top[2] or 0))
end
return {taken, records, bodies, last, 0}
