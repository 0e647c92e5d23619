-- check_dispatch: was this message lost, or is the backlog long? (step_id empty: the plan message)
-- Publishes again only if its queue is empty, or a step of the same queue that was dispatched 30 s later has been
-- claimed already, and in any case at the sixth check.
-- keys: run due claimed
-- args: step_id queue_empty check_ms jitter
-- moves: none
-- reply republish: queue limit_ms index checks generation kind
-- reply later: at_ms
-- reply not_due: status
-- reply unknown:
local step_id = A.step_id ~= '' and A.step_id or nil
local LATE, SURE = 30000, 6

local function nothing(word, status)
  not_due('dispatches', step_id)
  return { word, status }
end

local function decide(queue, dispatched_at, checks)
  local newest = tonumber(redis.call('HGET', K.claimed, queue) or '0')
  local lost = A.queue_empty == '1' or newest >= dispatched_at + LATE or checks >= SURE
  local wait = tonumber(A.check_ms) * 2 ^ math.min(checks, SURE)
  local at = NOW + math.floor(wait * (0.75 + 0.5 * tonumber(A.jitter)))
  due('dispatches', at, step_id)
  return lost, at
end

if not load_run() then return nothing('unknown') end
if not step_id then
  if run.status ~= 'accepted' or num('plan_not_before') > NOW then return nothing('not_due', run.status) end
  count('plan_checks', 1)
  local lost, at = decide(run.plan_queue, num('plan_dispatched_at'), num('plan_checks'))
  if lost then
    put('plan_dispatched_at', NOW)
    publish_event('plan.republished', { 'checks', run.plan_checks })
  end
  save_run()
  if lost then return { 'republish', run.plan_queue, num('plan_limit_ms'), 0, num('plan_checks'), num('generation'), 'plan' } end
  return { 'later', at }
end
local rec = step_record(step_id)
if not rec then return nothing('unknown') end
local undoing = rec.status == 'compensating' and rec.undo.state == 'dispatched'
if rec.status ~= 'dispatched' and not undoing then return nothing('not_due', rec.status) end
rec.checks = rec.checks + 1
touch(rec)
local lost, at = decide(rec.queue, rec.dispatched_at, rec.checks)
if not lost then
  save_steps()
  return { 'later', at }
end
rec.dispatched_at = NOW
if undoing then
  finish_undo('undo.republished', rec, 'republish')
else
  finish('step.republished', rec, 'republish')
end
return { 'republish', rec.queue, rec.limit_ms, rec.index, rec.checks, num('generation'), undoing and 'undo' or 'step' }
