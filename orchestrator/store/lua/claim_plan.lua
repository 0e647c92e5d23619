-- claim_plan: the lease for planning; takes over a lease that has lapsed
-- keys: run due
-- args: generation claim_id worker
-- moves: run accepted > planning; one whose last attempt lost its worker is ended by expire_plan
-- reply granted: fence attempt lease_ms lease_end limit_ms stop_grace_ms policy policy_hash context_hash version session_id request_id planner
-- reply busy:
-- reply stored:
-- reply stop: status
-- reply not_due: status
-- reply exhausted: attempts
-- reply other_generation: generation
-- reply unknown:
if not load_run() then return { 'unknown' } end
if num('generation') ~= tonumber(A.generation) then return { 'other_generation', num('generation') } end

local function grant()
  return { 'granted', num('plan_holder'), num('plan_attempt'), num('plan_lease_ms'), num('plan_lease_end'),
    num('plan_limit_ms'), num('stop_grace_ms'), run.policy, run.policy_hash, run.context_hash, num('version'),
    run.session_id, run.request_id, run.planner }
end

if run.status == 'planning' and num('plan_holder') ~= 0 then
  if run.plan_claim == A.claim_id then return grant() end
  if num('plan_lease_end') > NOW and num('plan_dead') == 0 then return { 'busy' } end
  if num('plan_attempt') >= num('plan_tries') then return { 'exhausted', num('plan_attempt') } end
elseif run.status == 'running' then
  return { 'stored' }
elseif run.status ~= 'accepted' then
  return { 'stop', run.status }
elseif num('paused_at') > 0 then
  not_due('dispatches')
  return { 'not_due', 'paused' }
elseif num('plan_not_before') > NOW then
  return { 'not_due', run.status }
end
if run.status == 'accepted' then move_run('planning') end
count('fence', 1)
count('plan_attempt', 1)
put('plan_holder', run.fence)
put('plan_claim', A.claim_id)
put('plan_worker', A.worker)
put('plan_dead', 0)
put('plan_lease_end', NOW + num('plan_lease_ms'))
not_due('dispatches')
due('leases', num('plan_lease_end'))
publish_event('plan.claimed', { 'attempt', run.plan_attempt, 'fence', run.fence, 'worker_id', A.worker, 'policy_hash', run.policy_hash })
save_run()
return grant()
