-- settle: whether a commit was done, and if not, that it never will be.
--
-- KEYS  1 session  string   the number of the last commit of the session
-- ARGV  1 number  2 how long the session is remembered, ms
--
-- A commit that is still on its way finds the session cut off, and does nothing. Either way something is written:
-- WAIT waits for what this connection wrote last, and so for the commit before it.
if redis.call('GET', KEYS[1]) == ARGV[1] then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return 1
end
redis.call('SET', KEYS[1], 'cut', 'PX', ARGV[2])
return 0
