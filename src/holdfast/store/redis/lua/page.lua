-- page: a range of a sorted set of ids, and the records of these ids.
--
-- KEYS  1 order    sorted   id by rank
--       2 records  hash     id ▸ record
-- ARGV  the arguments of ZRANGE
local ids = redis.call('ZRANGE', KEYS[1], unpack(ARGV))
local records = {}
for from = 1, #ids, 4000 do
  for _, record in ipairs(redis.call('HMGET', KEYS[2], unpack(ids, from, math.min(from + 3999, #ids)))) do
    records[#records + 1] = record
  end
end
return {ids, records}
