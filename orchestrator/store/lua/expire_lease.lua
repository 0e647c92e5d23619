-- expire_lease: the same decision as fail_step, for a claim whose holder is gone; its effect row is closed (fact)
-- keys: run due lock
-- args: step_id fence fact result_text call_id check_ms
-- moves: step running > ready > dispatched | completed | failed | in_doubt | skipped
-- reply again: version at_ms publish settle generation
-- reply committed: version at_ms publish settle generation
-- reply failed: version at_ms publish settle generation
-- reply skipped: version at_ms publish settle generation
-- reply in_doubt: version at_ms publish settle generation
-- reply not_lapsed: lease_end
-- reply fenced: current
-- reply unknown:
if not load_run() then
  not_due('leases', A.step_id)
  return { 'unknown' }
end
local rec = step_record(A.step_id)
if not rec then
  not_due('leases', A.step_id)
  return { 'unknown' }
end
-- only this very call may hear once more that it has ended the claim: whoever does says so, and is counted
local key = 'expire:' .. A.call_id
local kept = answered(rec, key)
if kept then return kept end
if rec.status ~= 'running' or rec.holder ~= tonumber(A.fence) then
  -- of a step that is being undone the lease is the undo's: whoever comes late must not make it forgotten
  if rec.status ~= 'running' and rec.status ~= 'compensating' then not_due('leases', A.step_id) end
  return { 'fenced', rec.fence }
end
-- whatever the holder renewed meanwhile: once its effect row is closed it cannot finish, so its claim is ended.
-- Only a pure step has no row that was closed.
if rec.effect == 'pure' and rec.lease_end > NOW and not rec.dead then
  due('leases', rec.lease_end, rec.id)
  return { 'not_lapsed', rec.lease_end }
end
local timed_out = NOW - rec.started_at >= rec.limit_ms
store_error(rec, timed_out
  and '{"kind":"step_timeout","message":"the attempt passed its time limit of ' .. rec.limit_ms .. ' ms","path":null}'
  or '{"kind":"worker_lost","message":"the worker that ran this attempt is gone","path":null}')
local word = conclude_lost(rec, A.fact)
local reply = answer(rec, key, word, fill_slots())
finish('step.expired', rec, word)
return reply
