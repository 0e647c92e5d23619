-- fail_plan: the planner raised or was not reachable: again later, or the run has failed
-- keys: run due
-- args: fence claim_id error retryable delay_ms jitter
-- moves: run planning > accepted | failed
-- reply retry_at: at_ms
-- reply failed: settle generation
-- reply fenced: current
-- reply unknown:
if not load_run() then return { 'unknown' } end
local kept = remembered(run.plan_reply, A.fence .. A.claim_id)
if kept and kept.at > 0 then return { 'retry_at', kept.at } end
if kept then return { 'failed', 1, num('generation') } end
if not planning_holder(A.fence, A.claim_id) then return { 'fenced', num('plan_holder') } end
put('error', A.error)
end_planning_claim()
local again = A.retryable == '1' and num('plan_attempt') < num('plan_tries')
local at = 0
if again then
  -- whoever was told when to come back does not come earlier
  at = math.max(jittered(num('plan_backoff_ms'), num('plan_backoff_max_ms'), num('plan_attempt')), NOW + tonumber(A.delay_ms))
end
put('plan_reply', cjson.encode({ key = A.fence .. A.claim_id, at = at }))
if again then
  move_run('accepted')
  put('plan_not_before', at)
  due('retries', at)
else
  end_run('failed', 'planner_failed')
end
publish_event(again and 'plan.retry' or 'run.failed', { 'attempt', run.plan_attempt, 'fence', A.fence })
save_run()
if again then return { 'retry_at', at } end
return { 'failed', 1, num('generation') }
