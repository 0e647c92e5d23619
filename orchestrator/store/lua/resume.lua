-- resume: the run goes on: what waited for room or for its planner is sent
-- keys: run due
-- args: generation by call_id check_ms
-- moves: step ready > dispatched
-- reply resumed: version at_ms publish settle generation queue limit_ms
-- reply too_late: status
-- reply other_generation: generation
-- reply unknown:
if not load_run() then return { 'unknown' } end
local said = said_before()
if said then return said end
if num('generation') ~= tonumber(A.generation) then return { 'other_generation', num('generation') } end
if num('paused_at') == 0 then return say({ 'too_late', run.status }) end
put('paused_at', 0)
put('paused_by', '')
local sent = fill_slots()
if run.status == 'accepted' and num('plan_not_before') <= NOW then dispatch_plan(NOW) end
publish_event('run.resumed', { 'by', A.by })
save_steps()
save_run()
-- the queue of the planner's message, where the run has no plan yet
local plan = run.status == 'accepted'
return say({ 'resumed', num('version'), 0, to_publish(sent), 0, num('generation'), plan and run.plan_queue or '',
  plan and num('plan_limit_ms') or 0 })
