-- tenants: the tenants with READY jobs, by name from above one on.
--
-- KEYS  1 pairs  sorted   the pairs with READY jobs: tenant, NUL, task
-- ARGV  1 the lower end of the range  2 its upper end  3 limit
local tenants, low = {}, ARGV[1]
while #tenants < tonumber(ARGV[3]) do
  local pair = redis.call('ZRANGEBYLEX', KEYS[1], low, ARGV[2], 'LIMIT', 0, 1)[1]
  if not pair then
    break
  end
  tenants[#tenants + 1] = string.match(pair, '^[^%z]*')
  low = '[' .. tenants[#tenants] .. '\1'
end
return tenants
