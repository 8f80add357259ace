-- settle: find out whether a commit was executed; if not, make sure that it never will be.
--
-- Begins with done.lua.
--
-- KEYS  1 marks    list     the stamps of the last commits, the latest first
--       2 version  string   the layout of the store and the stamp of its notice
-- ARGV  1 the stamp of the commit  2 a new stamp
--
-- Replies  1: it was executed, or else 0 · the oldest mark, if there may have been older ones
--
-- A commit that arrives later finds another version, and does nothing. The script writes in both cases, because WAIT
-- waits for the last write of this connection, and so also for the commit before it.
local version = redis.call('GET', KEYS[2])
if not version then
  return {0, false}
end
redis.call('SET', KEYS[2], string.match(version, '^.* ') .. ARGV[2])
local oldest = redis.call('LLEN', KEYS[1]) >= MARKS and redis.call('LINDEX', KEYS[1], -1)
return {redis.call('LPOS', KEYS[1], ARGV[1]) and 1 or 0, oldest}
