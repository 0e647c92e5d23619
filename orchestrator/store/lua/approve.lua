-- approve: a person says whether a step may start (allowed 1 or 0); also before its turn has come
-- keys: run due
-- args: step_id generation by allowed call_id check_ms
-- moves: step waiting_approval > ready > dispatched, or > failed (touched: in_doubt); pending: remembered
-- reply again: version at_ms publish settle generation
-- reply failed: version at_ms publish settle generation
-- reply noted:
-- reply not_due: status
-- reply other_generation: generation
-- reply unknown:
if not load_run() then return { 'unknown' } end
local said = said_before()
if said then return said end
if num('generation') ~= tonumber(A.generation) then return { 'other_generation', num('generation') } end
local rec = step_record(A.step_id)
if not rec then return { 'unknown' } end
if run.status ~= 'running' then return say({ 'not_due', run.status }) end
if rec.status == 'pending' and rec.approval == 'needed' and A.allowed == '1' then
  rec.approval, rec.approved_by = 'given', A.by
  touch(rec)
  finish('step.approved', rec, 'noted')
  return say({ 'noted' })
end
if rec.status ~= 'waiting_approval' then return say({ 'not_due', rec.status }) end
not_due('waits', rec.id)
rec.approved_by = A.by
if A.allowed == '1' then
  rec.approval = 'given'
  make_ready(rec)
else
  give_up_idle(rec, 'not_approved', '{"kind":"not_approved","message":"a person refused this step","path":null}')
end
local word = A.allowed == '1' and 'again' or 'failed'
local reply = answer(rec, 'approve:' .. A.call_id, word, fill_slots())
finish(word == 'again' and 'step.approved' or 'step.refused', rec, word)
return say(reply)
