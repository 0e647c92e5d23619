-- end_claim: the worker's parent has reaped the child that held the claim: its death is proven
-- keys: run due
-- args: step_id worker
-- moves: none; the claim counts as lapsed (step_id empty: the lease of planning)
-- reply ended: fence
-- reply other:
-- reply unknown:
if not load_run() then return { 'unknown' } end
if A.step_id == '' then
  if run.status ~= 'planning' or num('plan_holder') == 0 or run.plan_worker ~= A.worker then return { 'other' } end
  if num('plan_dead') == 1 then return { 'ended', num('plan_holder') } end
  put('plan_dead', 1)
  put('plan_lease_end', NOW)
  due('leases', NOW)
  publish_event('plan.claim_ended', { 'fence', run.plan_holder, 'worker_id', A.worker })
  save_run()
  return { 'ended', num('plan_holder') }
end
local rec = step_record(A.step_id)
if not rec then return { 'unknown' } end
if rec.status == 'compensating' then
  local undo = rec.undo
  if undo.state ~= 'running' or undo.holder == 0 or undo.worker ~= A.worker then return { 'other' } end
  if undo.dead then return { 'ended', undo.holder } end
  undo.dead, undo.lease_end = true, NOW
  touch(rec)
  due('leases', NOW, rec.id)
  finish_undo('undo.claim_ended', rec, 'ended')
  return { 'ended', undo.holder }
end
if rec.status ~= 'running' or rec.holder == 0 or rec.worker ~= A.worker then return { 'other' } end
if rec.dead then return { 'ended', rec.holder } end
rec.dead, rec.lease_end = true, NOW
touch(rec)
due('leases', NOW, rec.id)
finish('step.claim_ended', rec, 'ended')
return { 'ended', rec.holder }
