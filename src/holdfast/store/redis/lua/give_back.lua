-- give_back: put ids that claim.lua removed, and whose records were not written, back into their queues.
--
-- Begins with pairs.lua.
--
-- KEYS  1 in_process_queue  sorted   id by the end of its lease
--       2 jobs              hash     id ▸ stamp, record
--       3 pairs  4 turn_tenants  5 rest_tenants  6 rest_pairs     see pairs.lua
--       7 version           string   the layout of the store and the stamp of its notice
--       8 …                 sorted   the queues that they were in, and the queues and tasks of their pairs
-- ARGV  1 the layout that the batch knows: in another one nothing is done
--       2 how many pairs, and for each: its queue, its mock queue and its tasks (positions), pair, tenant, task
--       … id, stamp, how many queues, (queue, score)…, and so on; stamp "": there is no record
--
-- A record with another stamp was written meanwhile, by a commit that also updated its queues.
if string.sub(redis.call('GET', KEYS[7]) or '', 1, #ARGV[1]) ~= ARGV[1] then
  return 'VERSION'
end
local changed = tonumber(ARGV[2])
local at = 3 + 6 * changed
while at <= #ARGV do
  local id, stamp, orders = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2])
  local record = redis.call('HGET', KEYS[2], id) or ''
  if string.sub(record, 1, #stamp) == stamp and (stamp ~= '' or record == '') then
    redis.call('ZREM', KEYS[1], id)
    for n = at + 3, at + 2 + 2 * orders, 2 do
      redis.call('ZADD', KEYS[tonumber(ARGV[n])], ARGV[n + 1], id)
    end
  end
  at = at + 3 + 2 * orders
end
for n = 3, 2 + 6 * changed, 6 do
  local queue, mock_queue = KEYS[tonumber(ARGV[n])], KEYS[tonumber(ARGV[n + 1])]
  local tasks, pair, tenant, task = KEYS[tonumber(ARGV[n + 2])], ARGV[n + 3], ARGV[n + 4], ARGV[n + 5]
  follow(queue, mock_queue, tasks, pair, tenant, task, KEYS[3], KEYS[4], KEYS[5], KEYS[6])
end
return 'OK'
