-- give_back: put ids that were taken, and whose records nobody has written, back where they stood.
--
-- KEYS  1 in_process_queue  sorted   id by the end of its lease
--       2 jobs              hash     id ▸ stamp, record
--       3 …                 sorted   the orders that they stood in
-- ARGV  id, stamp, how many orders, (order, rank)…, and so on; a stamp of "": there is no record
--
-- A record with another stamp has been written meanwhile, and its writer has seen to its orders.
local at = 1
while at <= #ARGV do
  local id, stamp, spots = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2])
  local record = redis.call('HGET', KEYS[2], id) or ''
  if string.sub(record, 1, #stamp) == stamp and (stamp ~= '' or record == '') then
    redis.call('ZREM', KEYS[1], id)
    for n = at + 3, at + 2 + 2 * spots, 2 do
      redis.call('ZADD', KEYS[tonumber(ARGV[n])], ARGV[n + 1], id)
    end
  end
  at = at + 3 + 2 * spots
end
return 'OK'
