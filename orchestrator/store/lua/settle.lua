-- settle: close a run in which nothing moves any more, or begin to undo it
-- keys: run due
-- args: generation undo call_id check_ms
-- undo: 0: undoing does not begin, the caller is told that it is owed
-- moves: run running > succeeded; failing > failed | cancelled | compensating; compensating > compensated | compensation_failed
-- reply settled: status reason version generation ended_at
-- reply compensating: version at_ms publish settle generation
-- reply owing:
-- reply waiting: status
-- reply other_generation: generation
-- reply unknown:
if not load_run() then
  not_due('settles')
  not_due('undos')
  return { 'unknown' }
end
if num('generation') ~= tonumber(A.generation) then return { 'other_generation', num('generation') } end

local function answer_settled()
  return { 'settled', run.status, run.reason, num('version'), num('generation'), num('ended_at') }
end

local function undo_sent()
  return { 'compensating', num('version'), 0, to_publish(kept_sent('settle')), 0, num('generation') }
end

if TERMINAL[run.status] then return answer_settled() end
-- of steps that are not there nothing would be undone; it stays due until it has been built again
if in_pieces() then return { 'waiting', run.status } end
if run.status == 'compensating' and run.undoing_by == A.call_id then return undo_sent() end
if not settled() then
  not_due('settles')
  not_due('undos')
  return { 'waiting', run.status }
end
if run.status == 'failing' and run.on_failure == 'compensate' and any_owed() then
  if A.undo == '0' then return { 'owing' } end
  begin_undoing()
  keep_sent('settle', fill_slots())
  put('undoing_by', A.call_id)
  not_due('undos')
  publish_event('run.compensating', { 'reason', run.reason })
  save_steps()
  save_run()
  return undo_sent()
end
if run.status == 'running' then
  end_run('succeeded', '')
elseif run.status == 'compensating' then
  end_run(num('n_compensation_failed') > 0 and 'compensation_failed' or 'compensated', run.reason)
else
  end_run(run.reason == 'cancelled' and 'cancelled' or 'failed', run.reason)
end
publish_event('run.' .. run.status, { 'reason', run.reason })
save_run()
return answer_settled()
