-- create_run: accept a run once; judged by the hash of its submission
-- keys: run due
-- args: submission_hash on_failure on_doubt wait_ms request_id session_id principal policy policy_hash context_hash planner deadline_ms queue limit_ms stop_grace_ms lease_ms tries backoff_ms backoff_max_ms call_id check_ms ttl_ms
-- moves: run (none) > accepted
-- reply created: version queue limit_ms
-- reply exists: status
-- reply conflict:
if load_run() then
  if run.submission_hash ~= A.submission_hash then return { 'conflict' } end
  if run.created_by == A.call_id then return { 'created', 1, run.plan_queue, num('plan_limit_ms') } end
  return { 'exists', run.status }
end
local deadline_at = NOW + tonumber(A.deadline_ms)
local fields = {
  status = 'accepted', reason = '', version = 0, generation = 1, fence = 0, created_at = NOW, ended_at = 0,
  created_by = A.call_id, submission_hash = A.submission_hash, request_id = A.request_id, session_id = A.session_id,
  principal = A.principal, policy = A.policy, policy_hash = A.policy_hash, context_hash = A.context_hash,
  planner = A.planner, on_failure = A.on_failure, on_doubt = A.on_doubt, wait_ms = A.wait_ms,
  deadline_at = deadline_at, ttl_ms = A.ttl_ms,
  stop_grace_ms = A.stop_grace_ms, total = 0, active = 0,
  plan_queue = A.queue, plan_limit_ms = A.limit_ms, plan_lease_ms = A.lease_ms, plan_tries = A.tries,
  plan_backoff_ms = A.backoff_ms, plan_backoff_max_ms = A.backoff_max_ms,
  plan_attempt = 0, plan_holder = 0, plan_checks = 0, plan_not_before = 0,
}
for field, value in pairs(fields) do put(field, value) end
due('deadlines', deadline_at)
dispatch_plan(NOW)
publish_event('run.accepted', { 'policy_hash', A.policy_hash })
save_run()
return { 'created', num('version'), A.queue, tonumber(A.limit_ms) }
