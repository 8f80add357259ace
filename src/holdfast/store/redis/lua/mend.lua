-- mend: replace a record that cannot be read, unless it has changed since it was found.
--
-- KEYS  1 jobs or archive  hash  id ▸ stamp, record
-- ARGV  1 id  2 as it was found  3 as it is to be
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return 1
