-- retry: an ended run is started over, in a new generation. Completed steps stay, but for those that are to be done
-- again; fences grow on, attempts begin anew. Never after something was undone, nor while a `once` step is in doubt.
-- keys: run due
-- args: generation by deadline_ms call_id check_ms again_count *ids
-- ids: again_count steps that are done again although they are completed, then those that get a new key
-- moves: run failed | cancelled > running (with a plan) | accepted (without); dead_lettered > accepted; step failed | skipped | in_doubt | completed (of those done again) > pending > ready > dispatched
-- reply retried: version at_ms publish settle generation total queue limit_ms
-- reply in_doubt: step_id
-- reply no_step: step_id
-- reply kept: step_id
-- reply too_late: status
-- reply other_generation: generation
-- reply unknown:
if not load_run() then return { 'unknown' } end

-- total: the size of the new generation's chord; queue: of the planner's message, where there is no plan
local function retried(ids)
  local plan = run.status == 'accepted'
  return { 'retried', num('version'), 0, to_publish(ids), settled() and 1 or 0, num('generation'), num('retried_total'),
    plan and run.plan_queue or '', plan and num('plan_limit_ms') or 0 }
end

if run.retried_by_call == A.call_id then
  return retried(kept_sent('retry'))
end
-- what is left of it says too little; the ledger knows more, and has it built again
if in_pieces() then return { 'unknown' } end
if num('generation') ~= tonumber(A.generation) then return { 'other_generation', num('generation') } end
if run.status ~= 'failed' and run.status ~= 'cancelled' and run.status ~= 'dead_lettered' then
  return { 'too_late', run.status }
end
load_records()
for id, rec in pairs(records) do
  if rec.status == 'in_doubt' and rec.effect == 'once' then return { 'in_doubt', id } end
end

local again, renewed = {}, {}
local first_renewed = REST + tonumber(A.again_count)
for at = REST, #ARGV do
  if at < first_renewed then again[ARGV[at]] = true else renewed[ARGV[at]] = true end
end
for id in pairs(renewed) do
  local rec = step_record(id)
  if not rec then return { 'no_step', id } end
  if rec.status == 'in_doubt' then return { 'in_doubt', id } end
  if rec.status == 'completed' and not again[id] then return { 'kept', id } end
end

local function unmet(id)
  local waiting = 0
  for need in each(redis.call('HGET', K.needs, id)) do
    if step_record(need).status ~= 'completed' then waiting = waiting + 1 end
  end
  return waiting
end

local REPEATED = { pure = true, idempotent = true }

-- Its effect row gives back what has landed: nothing is done, so nobody is asked whether it may be.
local function answers_itself(rec)
  return rec.status == 'completed' and not REPEATED[rec.effect] and not renewed[rec.id]
end

local function start_over(rec)
  if rec.approval == 'given' and not answers_itself(rec) then rec.approval = 'needed' end
  if rec.status == 'completed' then
    redis.call('HDEL', K.results, rec.id)
    rec.touched = rec.effect ~= 'pure' or nil
  end
  -- what a person says is to be had once more is another effect: of this one nothing is known yet
  if renewed[rec.id] then rec.group, rec.touched = rec.group + 1, nil end
  move(rec, 'pending')
  rec.attempt, rec.holder, rec.dead, rec.claim, rec.reply = 0, 0, nil, nil, nil
  rec.refused_by, rec.refused_with, rec.handed_back, rec.given_up = nil, nil, nil, nil
end

put('generation', num('generation') + 1)
put('reason', '')
put('error', '')
put('ended_at', 0)
put('deadline_at', NOW + tonumber(A.deadline_ms))
put('plan_attempt', 0)
put('plan_not_before', 0)
put('plan_checks', 0)
put('paused_at', 0)
not_due('settles')
due('deadlines', num('deadline_at'))
local open, ready = 0, {}
if run.plan_hash and run.status ~= 'dead_lettered' then
  move_run('running')
  for id, rec in pairs(records) do
    if rec.status ~= 'completed' or again[id] then
      start_over(rec)
      open = open + 1
    end
  end
  for id, rec in pairs(records) do
    if rec.status == 'pending' then
      rec.waiting = unmet(id)
      if rec.waiting == 0 then ready[#ready + 1] = rec end
    end
  end
  table.sort(ready, function(a, b) return a.index < b.index end)
  for _, rec in ipairs(ready) do make_ready(rec) end
else
  move_run('accepted')
  dispatch_plan(NOW)
end
local sent = fill_slots()
due_settle() -- a person may have said of all that was left that it has landed
put('retried_total', open)
put('retried_by_call', A.call_id)
keep_sent('retry', sent)
publish_event('run.retried', { 'by', A.by, 'generation', run.generation })
save_steps()
keep_all()
save_run()
return retried(sent)
