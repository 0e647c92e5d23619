-- take_due: up to limit members whose time has come, moved forward, so that a pass which dies is repeated
-- A lost reply costs the members that wait (10 s), nothing else.
-- keys: due pass
-- args: duty limit again_ms
-- moves: none
-- reply members: members
-- reply resting: until_ms
local set = K['due_' .. A.duty]
if A.duty == 'leases' then
  local rest = tonumber(redis.call('HGET', K.pass, 'rest_until') or '0')
  if rest > NOW then return { 'resting', rest } end
  redis.call('HDEL', K.pass, 'rest_until', 'rests')
end
local members = redis.call('ZRANGEBYSCORE', set, '-inf', NOW, 'LIMIT', 0, tonumber(A.limit))
for _, name in ipairs(members) do redis.call('ZADD', set, NOW + tonumber(A.again_ms), name) end
return { 'members', members }
