-- lease: claim the first jobs of some queues as a whole, if nothing else has to be decided.
--
-- Begins with done.lua and choose.lua.
--
-- KEYS  1 version            string   the layout of the store and the stamp of its notice
--       2 jobs               hash     id ▸ stamp, record, data
--       3 data               hash     id ▸ large data
--       4 counts  hash       5 pairs  sorted     6 marks  list
--       7 ready              sorted   all READY jobs by rank
--       8 pauses             hash     9 in_process_queue  10 scheduled  11 expiring  12 due domains: sorted, by time
--      13 …                  sorted   the queues to claim from, by rank
-- ARGV  1 the version that the process knows  2 stamp  3 now, ms  4 limit  5 lowest rank  6 highest rank
--       7 how long the lease is, ms  8 the rank of the leased jobs  9 their other new fields, in JSON
--      10 the most bytes of data  11 "1": jobs of pairs that are not listed here match too, perhaps
--       … pair, the position of its queue (0: not wanted), the most jobs
--
-- Replies  ids, in order · their values before · large data of those that have such
--          or VERSION: the layout or the notice has changed
--          or nothing, if something else must be decided; or PAIRS, if others match, perhaps

local call = redis.call
if call('GET', KEYS[1]) ~= ARGV[1] then
  return 'VERSION'
elseif call('EXISTS', KEYS[8]) == 1 then
  return false
end
for n = 9, 12 do
  if call('ZCOUNT', KEYS[n], '-inf', ARGV[3]) > 0 then
    return false
  end
end

local sources, known = {}, {}
for n = 12, #ARGV, 3 do
  known[ARGV[n]] = true
  if ARGV[n + 1] ~= '0' then
    local source = {order = KEYS[tonumber(ARGV[n + 1])], all = KEYS[7], most = tonumber(ARGV[n + 2])}
    source.pair, source.count = ARGV[n], 0
    sources[#sources + 1] = source
  end
end
if ARGV[11] == '1' then
  for _, pair in ipairs(call('ZRANGE', KEYS[5], 0, (#ARGV - 11) / 3)) do
    if not known[pair] then
      return 'PAIRS'
    end
  end
end

local chosen, from = choose(sources, tonumber(ARGV[4]), ARGV[5], ARGV[6], {})
if #chosen == 0 then
  return {chosen, {}, {}}
end
local values, large, changed = many('HMGET', KEYS[2], chosen), {}, {}
-- How many jobs these are: those that have too much data together are left.
local lease_ms, most, size, number = tonumber(ARGV[7]), tonumber(ARGV[10]), 0, #chosen
for n, id in ipairs(chosen) do
  local value = values[n] or ''
  -- Where the record ends, and where its fields begin that a claim does not change.
  local last = string.find(value, '\0', 13, true) or 0
  local rest = string.find(value, ',"task":"', 13, true) or last
  local hot = string.sub(value, 13, rest - 1)
  if rest >= last or not string.find(hot, '^{"id":%d+,"place":2,"rank":%d+') then
    -- It is damaged.
    return false
  end
  local plain, letter = string.match(value, '^(%d*)(.?)', last + 1)
  if plain ~= '' and tonumber(plain) < lease_ms then
    return false
  end
  size = size + (tonumber(string.match(string.sub(value, rest, last), ',"size":(%d+)')) or 0)
  if n > 1 and size > most then
    number = n - 1
    break
  end
  if letter == 'L' then
    large[#large + 1] = id
  end
  local version, claim = string.match(hot, '"version":(%d+)') or 1, string.match(hot, '"claim":(%d+)') or 0
  local new = '{"id":%s,"place":4,"rank":%s,"version":%d,"claim":%d'
  new = string.format(new, string.match(id, '[1-9]%d*'), ARGV[8], version + 1, claim + 1)
  changed[2 * n - 1], changed[2 * n] = id, ARGV[2] .. new .. ARGV[9] .. string.sub(value, rest)
  from[n].count = from[n].count + 1
end

take(chosen, from, number, KEYS[9], ARGV[8])
many('HSET', KEYS[2], changed)
for _, source in ipairs(sources) do
  if source.count > 0 then
    count(KEYS[4], KEYS[5], source.pair .. '\0002\000QUEUED', -source.count)
    count(KEYS[4], KEYS[5], source.pair .. '\0004\000RUNNING', source.count)
  end
end
done(KEYS[6], ARGV[2], '')
for n = number + 1, #chosen do
  chosen[n], values[n] = nil, nil
end
return {chosen, values, #large > 0 and many('HMGET', KEYS[3], large) or {}}
