-- renew_lease: the holder lives; also after a lapse that nobody has ended. No transition: version and events stay
-- keys: run due lock
-- args: step_id fence claim_id kind
-- moves: none (step_id empty: the lease of planning; kind do or undo)
-- reply ok: lease_end
-- reply lost:
-- reply stop: reason
-- reply unknown:
if not load_run() then return { 'unknown' } end
if A.step_id == '' then
  if not planning_holder(A.fence, A.claim_id) or num('plan_dead') == 1 then return { 'lost' } end
  put('plan_lease_end', NOW + num('plan_lease_ms'))
  due('leases', num('plan_lease_end'))
  save_run()
  return { 'ok', num('plan_lease_end') }
end
local rec = step_record(A.step_id)
if not rec then return { 'unknown' } end
if A.kind == 'undo' then
  if not rec.undo or not undo_held(rec) or rec.undo.dead then return { 'lost' } end
  rec.undo.lease_end = NOW + rec.lease_ms
  touch(rec)
  due('leases', rec.undo.lease_end, rec.id)
  redis.call('SET', K.lock, rec.undo.fence .. '|' .. rec.undo.worker .. '|' .. rec.undo.claim, 'PX', rec.lease_ms)
  save_steps()
  return { 'ok', rec.undo.lease_end }
end
if not held(rec) or rec.dead then return { 'lost' } end
rec.lease_end = NOW + rec.lease_ms
touch(rec)
due('leases', rec.lease_end, rec.id)
redis.call('SET', K.lock, rec.fence .. '|' .. rec.worker .. '|' .. rec.claim, 'PX', rec.lease_ms)
save_steps()
if run.status ~= 'running' then return { 'stop', run.reason } end
return { 'ok', rec.lease_end }
