-- pairs: the common first part of commit.lua and give_back.lua: which pairs (tenant, task) have READY jobs.
--
-- pairs         sorted   pairs with READY jobs, by the turn in which they were last served
-- tasks         sorted   the tasks of one tenant that have READY jobs, likewise
-- turn_tenants  sorted   tenants with READY jobs, by their last turn
-- rest_pairs    sorted   pairs without READY jobs, with their last turn; rest_tenants likewise

-- Moves a name from one sorted set to another, with its turn; returns the turn.
local function move(from, name, to, name_there)
  local turn = redis.call('ZSCORE', from, name) or 0
  redis.call('ZREM', from, name)
  redis.call('ZADD', to, turn, name_there)
  return turn
end

-- Moves a pair to the right sorted sets after its queues have changed.
local function follow(queue, mock_queue, tasks, pair, tenant, task, pairs, turn_tenants, rest_tenants, rest_pairs)
  local has_jobs = redis.call('EXISTS', queue, mock_queue) > 0
  if has_jobs == (redis.call('ZSCORE', tasks, task) ~= false) then
    return
  end
  if has_jobs then
    redis.call('ZADD', pairs, move(rest_pairs, pair, tasks, task), pair)
    if not redis.call('ZSCORE', turn_tenants, tenant) then
      move(rest_tenants, tenant, turn_tenants, tenant)
    end
  else
    redis.call('ZREM', pairs, pair)
    move(tasks, task, rest_pairs, pair)
    if redis.call('EXISTS', tasks) == 0 then
      move(turn_tenants, tenant, rest_tenants, tenant)
    end
  end
end
