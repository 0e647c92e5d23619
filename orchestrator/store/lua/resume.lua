-- resume: the run goes on: what waited for room or for its planner is sent
-- keys: run due
-- args: generation by call_id check_ms
-- moves: step ready > dispatched
-- reply resumed: version at_ms publish settle generation queue limit_ms
-- reply too_late: status
-- reply other_generation: generation
-- reply unknown:
if not load_run() then return { 'unknown' } end
if num('generation') ~= tonumber(A.generation) then return { 'other_generation', num('generation') } end

-- the queue of the planner's message, where the run has no plan yet
local function resumed(ids)
  local plan = run.status == 'accepted'
  return { 'resumed', num('version'), 0, to_publish(ids), 0, num('generation'), plan and run.plan_queue or '',
    plan and num('plan_limit_ms') or 0 }
end

if run.resumed_by_call == A.call_id then
  return resumed(kept_sent('resume'))
end
if num('paused_at') == 0 then return { 'too_late', run.status } end
put('paused_at', 0)
put('paused_by', '')
local sent = fill_slots()
if run.status == 'accepted' and num('plan_not_before') <= NOW then dispatch_plan(NOW) end
put('resumed_by_call', A.call_id)
keep_sent('resume', sent)
publish_event('run.resumed', { 'by', A.by })
save_steps()
save_run()
return resumed(sent)
