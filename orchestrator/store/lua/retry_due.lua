-- retry_due: a wait is over: the step is dispatched again as soon as there is room (step_id empty: the planner is asked again)
-- keys: run due
-- args: step_id call_id check_ms
-- moves: step backoff > ready > dispatched; a compensating one stays so
-- reply again: version at_ms publish settle generation
-- reply plan_again: queue limit_ms generation
-- reply not_due: status
-- reply unknown:
if not load_run() then
  not_due('retries', A.step_id ~= '' and A.step_id or nil)
  return { 'unknown' }
end
if A.step_id == '' then
  if run.status ~= 'accepted' or num('plan_not_before') > NOW then return { 'not_due', run.status } end
  not_due('retries')
  dispatch_plan(NOW)
  save_run()
  return { 'plan_again', run.plan_queue, num('plan_limit_ms'), num('generation') }
end
local rec = step_record(A.step_id)
if not rec then
  not_due('retries', A.step_id)
  return { 'unknown' }
end
local kept = answered(rec, 'retry:' .. A.call_id)
if kept then return kept end
if rec.status == 'compensating' and rec.undo.state == 'backoff' then
  if rec.undo.not_before > NOW then
    due('retries', rec.undo.not_before, rec.id)
    return { 'not_due', rec.status }
  end
  not_due('retries', rec.id)
  undo_ready(rec)
  local reply = answer(rec, 'retry:' .. A.call_id, 'again', fill_slots())
  finish_undo('undo.due', rec, 'again')
  return reply
end
if rec.status ~= 'backoff' or run.status ~= 'running' then
  not_due('retries', rec.id)
  return { 'not_due', rec.status }
end
if rec.not_before > NOW then
  due('retries', rec.not_before, rec.id)
  return { 'not_due', rec.status }
end
not_due('retries', rec.id)
make_ready(rec, true)
local reply = answer(rec, 'retry:' .. A.call_id, 'again', fill_slots())
finish('step.due', rec, 'again')
return reply
