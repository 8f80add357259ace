-- give_back: put ids that claim.lua removed, and whose records were not written, back into their queues.
--
-- KEYS  1 in_process_queue  sorted   id by the end of its lease
--       2 jobs              hash     id ▸ stamp, record
--       3 version           string   the layout of the store and the stamp of its notice
--       4 …                 sorted   the orders that they were in
-- ARGV  1 the layout that the batch knows: in another one nothing is done
--       … id, stamp, how many orders, (order, score)…, and so on; stamp "": there is no record
--
-- A record with another stamp was written meanwhile, by a commit that also updated its queues.
if string.sub(redis.call('GET', KEYS[3]) or '', 1, #ARGV[1]) ~= ARGV[1] then
  return 'VERSION'
end
local at = 2
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
return 'OK'
