-- done: the common first part of the scripts that commit.

-- How many marks are kept at least; twice as many are trimmed to that.
local MARKS = 20000

-- Marks a commit as done, and tells processes that wait; they have subscribed to the name of the key.
local function done(marks, stamp, message)
  if redis.call('LPUSH', marks, stamp) > 2 * MARKS then
    redis.call('LTRIM', marks, 0, MARKS - 1)
  end
  if message ~= '' then
    -- Only a hint: without the right to publish, the commit is still valid.
    redis.pcall('PUBLISH', marks, message)
  end
end

-- Adds to a count; one of zero is deleted. A pair (tenant, task) is listed while it has READY jobs by its counts.
local function count(counts, pairs, field, difference)
  local now = redis.call('HINCRBY', counts, field, difference)
  if now == 0 then
    redis.call('HDEL', counts, field)
  elseif now ~= tonumber(difference) then
    return
  end
  local pair = string.match(field, '^(.*)%z2%z')
  if not pair then
    return
  elseif now ~= 0 then
    redis.call('ZADD', pairs, 0, pair)
  else
    local left = redis.call('HMGET', counts, pair .. '\0002\000QUEUED', pair .. '\0002\000RUNQUEUED')
    if not (left[1] or left[2]) then
      redis.call('ZREM', pairs, pair)
    end
  end
end
