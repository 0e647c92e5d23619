-- mend_due: every place in `due` that a run which has not ended in the ledger should have, and has not
-- keys: run due
-- args: check_ms
-- moves: none
-- reply mended: added
-- reply unknown:
if not load_run() then return { 'unknown' } end

local added = 0

local function want(duty, at, step_id)
  added = added + redis.call('ZADD', K['due_' .. duty], 'NX', at, member(step_id))
end

local function want_undo(rec)
  local undo = rec.undo
  if undo.state == 'running' then want('leases', undo.lease_end, rec.id) end
  if undo.state == 'dispatched' then want('dispatches', NOW + tonumber(A.check_ms), rec.id) end
  if undo.state == 'backoff' then want('retries', undo.not_before, rec.id) end
end

local function want_step(rec)
  if rec.status == 'running' then want('leases', rec.lease_end, rec.id) end
  if rec.status == 'dispatched' then want('dispatches', NOW + tonumber(A.check_ms), rec.id) end
  if rec.status == 'backoff' then want('retries', rec.not_before, rec.id) end
  if rec.status == 'compensating' then want_undo(rec) end
  local asked = rec.status == 'waiting_approval' or rec.status == 'in_doubt'
  if asked and rec.wait_until and run.status == 'running' then want('waits', rec.wait_until, rec.id) end
end

if TERMINAL[run.status] then
  want('settles', NOW)
  return { 'mended', added }
end
want('deadlines', num('deadline_at'))
if run.status == 'planning' then want('leases', num('plan_lease_end')) end
if run.status == 'accepted' and num('plan_not_before') > NOW then
  want('retries', num('plan_not_before'))
elseif run.status == 'accepted' and num('paused_at') == 0 then
  want('dispatches', NOW + tonumber(A.check_ms))
end
load_records()
for _, rec in pairs(records) do want_step(rec) end
if run.plan_hash and settled() then want(settle_duty(), NOW + 1000) end
return { 'mended', added }
