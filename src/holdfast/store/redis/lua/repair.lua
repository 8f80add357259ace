-- repair: replace a record that cannot be decoded, unless it has changed since it was read.
--
-- KEYS  1 jobs or archive  hash    id ▸ stamp, record
--       2 version          string  the layout of the store and the stamp of its notice
-- ARGV  1 id  2 the value that was read  3 the new value  4 the layout that this process knows
if string.sub(redis.call('GET', KEYS[2]) or '', 1, #ARGV[4]) ~= ARGV[4] then return 0 end
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return 1
