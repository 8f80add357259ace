-- repair: replace a record that cannot be decoded, unless it has changed since it was read.
--
-- KEYS  1 jobs or archive  hash  id ▸ stamp, record
-- ARGV  1 id  2 the value that was read  3 the new value
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return 1
