-- settle: find out whether a commit was applied; if not, make sure that it never will be.
--
-- KEYS  1 session  string   the number of the last commit of the session
-- ARGV  1 number  2 how long the session is kept, ms
--
-- A commit that arrives later finds the session closed, and does nothing. The script writes in both cases, because WAIT
-- waits for the last write of this connection, and so also for the commit before it.
if redis.call('GET', KEYS[1]) == ARGV[1] then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return 1
end
redis.call('SET', KEYS[1], 'cut', 'PX', ARGV[2])
return 0
