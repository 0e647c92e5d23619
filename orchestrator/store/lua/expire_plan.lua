-- expire_plan: a planning lease has lapsed: the planner is asked again, or the run has failed
-- keys: run due
-- args: check_ms
-- moves: run planning > accepted | failed
-- reply again: queue limit_ms generation
-- reply failed: settle generation
-- reply not_due: status
-- reply unknown:
if not load_run() then
  not_due('leases')
  return { 'unknown' }
end
if run.status ~= 'planning' then
  not_due('leases')
  return { 'not_due', run.status }
end
if num('plan_lease_end') > NOW and num('plan_dead') == 0 then
  due('leases', num('plan_lease_end'))
  return { 'not_due', run.status }
end
end_planning_claim()
local again = num('plan_attempt') < num('plan_tries')
if again then
  move_run('accepted')
  dispatch_plan(NOW)
else
  put('error', '{"kind":"worker_lost","message":"the worker that ran the planner is gone","path":null}')
  end_run('failed', 'planner_failed')
end
publish_event('plan.expired', { 'attempt', run.plan_attempt, 'outcome', again and 'again' or 'failed' })
save_run()
if again then return { 'again', run.plan_queue, num('plan_limit_ms'), num('generation') } end
return { 'failed', 1, num('generation') }
