-- wait_over: nobody has answered in time for a step in doubt, or for one that needs approval: it counts as failure
-- keys: run due
-- args: step_id call_id check_ms
-- moves: step waiting_approval > failed (touched: in_doubt); run running > failing
-- reply failed: version at_ms publish settle generation
-- reply in_doubt: version at_ms publish settle generation
-- reply not_due: status
-- reply unknown:
if not load_run() then
  not_due('waits', A.step_id)
  return { 'unknown' }
end
local rec = step_record(A.step_id)
if not rec then
  not_due('waits', A.step_id)
  return { 'unknown' }
end
local kept = answered(rec, 'waited:' .. A.call_id)
if kept then return kept end
local waits = rec.status == 'in_doubt' or rec.status == 'waiting_approval'
if not waits or run.status ~= 'running' then
  not_due('waits', rec.id)
  return { 'not_due', rec.status }
end
if rec.wait_until > NOW then
  due('waits', rec.wait_until, rec.id)
  return { 'not_due', rec.status }
end
not_due('waits', rec.id)
local word = rec.status == 'in_doubt' and 'in_doubt' or 'failed'
owe_letter(rec, word == 'failed' and 'nobody approved this step in time'
  or 'nobody said in time whether its effect happened', 'wait')
if word == 'failed' then
  give_up_idle(rec, 'not_approved', '{"kind":"not_approved","message":"nobody approved this step in time","path":null}')
else
  leave_running('in_doubt:' .. rec.id)
end
local reply = answer(rec, 'waited:' .. A.call_id, word, {})
finish('step.wait_over', rec, word)
return reply
