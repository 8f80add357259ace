-- claim: remove the first ids from some READY queues, for a batch that is about to write their records.
--
-- The first of two steps. A claimed id is in `in_process_queue` with a deadline; if its record is not written by then
-- (commit.lua), upkeep puts the id back (docs/decisions/0009).
--
-- Begins with choose.lua.
--
-- KEYS  1 in_process_queue  sorted   id by the end of its lease
--       2 jobs              hash     id ▸ stamp, record, data
--       3 version           string   the layout of the store and the stamp of its notice
--       4 …                 sorted   the queues to claim from, by rank, and those of all READY jobs
-- ARGV  1 deadline, ms  2 limit  3 lowest rank  4 highest rank  5 the version that the batch knows
--       6 how many ids to skip, and these ids: the batch itself has moved them
--       … sources: a queue, the queue of all READY jobs that contains it, the limit
--
-- Replies  ids, in order · their values; or nothing, if the version has changed

if redis.call('GET', KEYS[3]) ~= ARGV[5] then
  return {}
end
local passed, at, sources = {}, 7 + tonumber(ARGV[6]), {}
for n = 7, at - 1 do
  passed[ARGV[n]] = true
end
for n = at, #ARGV, 3 do
  local order, all = KEYS[tonumber(ARGV[n])], KEYS[tonumber(ARGV[n + 1])]
  sources[#sources + 1] = {order = order, all = all, most = tonumber(ARGV[n + 2])}
end
local chosen, from = choose(sources, tonumber(ARGV[2]), ARGV[3], ARGV[4], passed)
take(chosen, from, #chosen, KEYS[1], ARGV[1])
return {chosen, many('HMGET', KEYS[2], chosen)}
