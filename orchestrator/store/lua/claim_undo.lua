-- claim_undo: the right to undo a step, once everything that needed it is undone
-- keys: run due lock claimed
-- args: step_id generation claim_id worker
-- moves: none (the step is compensating since its undo was sent)
-- reply granted: fence attempt lease_ms lease_end limit_ms stop_grace_ms effect index token step_text inputs policy policy_hash context_hash plan_id version session_id request_id attempt_group done done_fence
-- reply busy:
-- reply completed: fence
-- reply stop: status
-- reply not_due: status
-- reply close_first: fence effect token
-- reply other_generation: generation
-- reply unknown:
if not load_run() then return { 'unknown' } end
-- of a run that is going to be built again, an attempt would find no step or no inputs, and be used up
if in_pieces() then return { 'unknown' } end
if num('generation') ~= tonumber(A.generation) then return { 'other_generation', num('generation') } end
local rec = step_record(A.step_id)
if not rec then return { 'unknown' } end
local undo = rec.undo

local function inputs()
  local flat = {}
  for id in each(rec.refs) do
    flat[#flat + 1] = id
    flat[#flat + 1] = redis.call('HGET', K.results, id) or 'null'
  end
  return flat
end

local function grant()
  return { 'granted', undo.holder, undo.attempt, rec.lease_ms, undo.lease_end, rec.limit_ms, num('stop_grace_ms'),
    rec.effect, rec.index, rec.token, redis.call('HGET', K.plan, rec.id), inputs(), run.policy, run.policy_hash,
    run.context_hash, run.plan_id, num('version'), run.session_id, run.request_id, rec.group,
    redis.call('HGET', K.results, rec.id) or '', rec.fence }
end

if rec.status == 'compensated' then return { 'completed', undo.fence } end
if run.status ~= 'compensating' then return { 'stop', run.status } end
if not undo or rec.status ~= 'compensating' then return { 'not_due', rec.status } end
if undo.state == 'running' then
  if undo.claim == A.claim_id then return grant() end
  if not undo.dead then return { 'busy' } end
  return { 'close_first', undo.holder, rec.effect, rec.token }
elseif undo.state ~= 'dispatched' then
  return { 'not_due', undo.state }
end
count('fence', 1)
undo.state, undo.attempt, undo.fence, undo.holder = 'running', undo.attempt + 1, num('fence'), num('fence')
undo.claim, undo.worker, undo.dead = A.claim_id, A.worker, nil
undo.started_at, undo.lease_end = NOW, NOW + rec.lease_ms
touch(rec)
not_due('dispatches', rec.id)
due('leases', undo.lease_end, rec.id)
redis.call('SET', K.lock, undo.fence .. '|' .. A.worker .. '|' .. A.claim_id, 'PX', rec.lease_ms)
local newest = tonumber(redis.call('HGET', K.claimed, rec.queue) or '0')
if (rec.dispatched_at or 0) > newest then redis.call('HSET', K.claimed, rec.queue, rec.dispatched_at) end
finish_undo('undo.claimed', rec, 'granted')
return grant()
