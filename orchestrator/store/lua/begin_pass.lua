-- begin_pass: may this pass over a shard start? Not while another is younger than half the interval
-- keys: due pass
-- args: duty interval_ms lease_ms
-- moves: none
-- reply ok: rest_until
-- reply too_soon: age_ms
local last = tonumber(redis.call('HGET', K.pass, A.duty) or '0')
if NOW - last < tonumber(A.interval_ms) / 2 then return { 'too_soon', NOW - last } end
redis.call('HSET', K.pass, A.duty, NOW)
-- after an outage holders get one lease to renew before anybody is reclaimed
if A.duty == 'leases' and last > 0 and NOW - last > tonumber(A.lease_ms) / 2 then
  redis.call('HSET', K.pass, 'rest_until', NOW + tonumber(A.lease_ms))
end
return { 'ok', tonumber(redis.call('HGET', K.pass, 'rest_until') or '0') }
