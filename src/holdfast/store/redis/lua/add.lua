-- add: one new READY job, if there is none with its id.
--
-- Begins with done.lua.
--
-- KEYS  1 version  string   the layout of the store and the stamp of its notice
--       2 jobs     hash     id ▸ stamp, record, data
--       3 ids      sorted   all live jobs
--       4 ready    sorted   all READY jobs by rank
--       5 counts   hash     6 pairs  sorted     7 marks  list
--       8 the queue of its pair, sorted, by rank
-- ARGV  1 the version that the process knows  2 the count that it adds to  3 the message to publish
--       4 id  5 rank  6 stamp, record, data
--
-- Replies  OK · VERSION: the layout or the notice has changed · or there is a job with that id
local call = redis.call
if call('GET', KEYS[1]) ~= ARGV[1] then
  return 'VERSION'
elseif call('HSETNX', KEYS[2], ARGV[4], ARGV[6]) == 0 then
  return KEYS[2] .. ' ' .. ARGV[4]
end
call('ZADD', KEYS[3], 0, ARGV[4])
call('ZADD', KEYS[4], ARGV[5], ARGV[4])
call('ZADD', KEYS[8], ARGV[5], ARGV[4])
count(KEYS[5], KEYS[6], ARGV[2], 1)
done(KEYS[7], string.sub(ARGV[6], 1, 12), ARGV[3])
return 'OK'
