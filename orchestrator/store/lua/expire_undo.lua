-- expire_undo: the same decision as fail_undo, for a claim whose holder is gone; its effect row is closed (fact)
-- keys: run due lock
-- args: step_id fence fact call_id check_ms
-- moves: step compensating > compensated | compensation_failed
-- reply again: version at_ms publish settle generation
-- reply committed: version at_ms publish settle generation
-- reply given_up: version at_ms publish settle generation
-- reply fenced: current
-- reply unknown:
if not load_run() then
  not_due('leases', A.step_id)
  return { 'unknown' }
end
local rec = step_record(A.step_id)
if not rec or not rec.undo then
  not_due('leases', A.step_id)
  return { 'unknown' }
end
local key = 'undo_expired:' .. A.call_id
local kept = answered(rec, key)
if kept then return kept end
if rec.undo.state ~= 'running' or rec.undo.holder ~= tonumber(A.fence) then
  if rec.undo.state ~= 'running' then not_due('leases', A.step_id) end
  return { 'fenced', rec.undo.fence }
end
store_undo_error(rec, '{"kind":"worker_lost","message":"the worker that undid this step is gone","path":null}')
local word = conclude_undo(rec, A.fact, true, undo_ready)
local reply = answer(rec, key, word, fill_slots())
finish_undo('undo.expired', rec, word)
return reply
