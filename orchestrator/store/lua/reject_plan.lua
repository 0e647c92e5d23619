-- reject_plan: the planner's answer was refused for good; the letter is in the ledger already
-- keys: run due
-- args: fence claim_id reason error
-- moves: run planning > dead_lettered
-- reply rejected:
-- reply fenced: current
-- reply unknown:
if not load_run() then return { 'unknown' } end
if run.status == 'dead_lettered' and run.plan_claim == A.claim_id then return { 'rejected' } end
if not planning_holder(A.fence, A.claim_id) then return { 'fenced', num('plan_holder') } end
end_planning_claim()
put('error', A.error)
end_run('dead_lettered', A.reason)
publish_event('plan.rejected', { 'reason', A.reason, 'fence', A.fence })
save_run()
return { 'rejected' }
