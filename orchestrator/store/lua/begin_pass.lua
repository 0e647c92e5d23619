-- begin_pass: may this pass over a shard start? Not while another is younger than half the interval
-- keys: due pass
-- args: duty interval_ms lease_ms
-- moves: none
-- reply ok: rest_until
-- reply too_soon: age_ms
local last = tonumber(redis.call('HGET', K.pass, A.duty) or '0')
local gap, lease = NOW - last, tonumber(A.lease_ms)
if gap < tonumber(A.interval_ms) / 2 then return { 'too_soon', gap } end
redis.call('HSET', K.pass, A.duty, NOW)
-- After an outage holders get one lease to renew before anybody is reclaimed. That passes were far apart is only a hint
-- of one: they may have been slow. So a rest ends with a pass that takes (take_due), and until then there is one more
-- at most, for a second outage that was long enough to cost a holder its lease: it renews with each third.
if A.duty == 'leases' and last > 0 then
  local rests = tonumber(redis.call('HGET', K.pass, 'rests') or '0')
  if (rests == 0 and gap > lease / 2) or (rests == 1 and gap >= lease * 2 / 3) then
    redis.call('HSET', K.pass, 'rest_until', NOW + lease, 'rests', rests + 1)
  end
end
return { 'ok', tonumber(redis.call('HGET', K.pass, 'rest_until') or '0') }
