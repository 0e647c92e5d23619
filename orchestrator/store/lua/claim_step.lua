-- claim_step: the right to run one attempt; never takes over a claim that nobody has ended
-- keys: run due lock claimed
-- args: step_id generation claim_id worker
-- moves: step dispatched > ready (paused); running(dead, pure, attempts left) > running; too large inputs: > failed (touched: in_doubt)
-- reply granted: fence attempt lease_ms lease_end limit_ms stop_grace_ms effect index token step_text inputs policy policy_hash context_hash plan_id version session_id request_id attempt_group
-- reply busy:
-- reply completed: fence
-- reply stop: status
-- reply not_due: status
-- reply close_first: fence effect token
-- reply inputs_too_large: bytes limit
-- reply other_generation: generation
-- reply unknown:
if not load_run() then return { 'unknown' } end
-- of a run that is going to be built again, an attempt would find no step or no inputs, and be used up
if in_pieces() then return { 'unknown' } end
if num('generation') ~= tonumber(A.generation) then return { 'other_generation', num('generation') } end
local rec = step_record(A.step_id)
if not rec then return { 'unknown' } end

local function inputs()
  local ids, flat, bytes = {}, {}, 0
  for id in each(rec.refs) do ids[#ids + 1] = id end
  if #ids == 0 then return flat, 0 end
  for i, text in ipairs(redis.call('HMGET', K.results, unpack(ids))) do
    bytes = bytes + #(text or '')
    flat[#flat + 1] = ids[i]
    flat[#flat + 1] = text or 'null'
  end
  return flat, bytes
end

local function grant(given)
  return { 'granted', rec.holder, rec.attempt, rec.lease_ms, rec.lease_end, rec.limit_ms, num('stop_grace_ms'),
    rec.effect, rec.index, rec.token, redis.call('HGET', K.plan, rec.id), given, run.policy, run.policy_hash,
    run.context_hash, run.plan_id, num('version'), run.session_id, run.request_id, rec.group }
end

local function refuse(reply, text)
  not_due('dispatches', rec.id)
  count('active', -1)
  rec.refused_by, rec.refused_with = A.claim_id, cjson.encode(reply)
  give_up_idle(rec, 'step_failed', text)
  due_settle()
  finish('step.failed', rec, reply[1])
  return reply
end

if rec.refused_by == A.claim_id then return cjson.decode(rec.refused_with) end
if rec.status == 'completed' then return { 'completed', rec.fence } end
if rec.status == 'running' and rec.claim == A.claim_id then return grant((inputs())) end
if run.status ~= 'running' then return { 'stop', run.status } end
if rec.status == 'running' then
  if not rec.dead then return { 'busy' } end
  -- only what had no effect may be claimed over; its last attempt is ended as any other is, with a letter
  if rec.effect ~= 'pure' or rec.attempt >= rec.max_attempts then
    return { 'close_first', rec.holder, rec.effect, rec.token }
  end
elseif rec.status ~= 'dispatched' then
  return { 'not_due', rec.status }
end
-- a paused run starts nothing: the step waits for resume, and gives its place up
if num('paused_at') > 0 and rec.status == 'dispatched' then
  not_due('dispatches', rec.id)
  count('active', -1)
  make_ready(rec, true)
  finish('step.held', rec, 'paused')
  return { 'not_due', 'paused' }
end
local given, bytes = inputs()
if bytes > num('inputs_bytes') then
  return refuse({ 'inputs_too_large', bytes, num('inputs_bytes') }, cjson.encode({ kind = 'inputs_too_large',
    message = 'the results this step refers to have ' .. bytes .. ' bytes, the limit is ' .. run.inputs_bytes
      .. ' (MANDOR_INPUTS_BYTES)', path = 'params' }))
end

if rec.status == 'running' then
  moved[#moved + 1] = rec.id .. '=running/' .. (rec.attempt + 1) .. '/' .. (num('fence') + 1)
end
count('fence', 1)
rec.attempt, rec.fence, rec.holder = rec.attempt + 1, num('fence'), num('fence')
rec.claim, rec.worker, rec.dead = A.claim_id, A.worker, nil
rec.started_at, rec.ended_at, rec.lease_end = NOW, nil, NOW + rec.lease_ms
touch(rec)
if rec.status ~= 'running' then move(rec, 'running') end
not_due('dispatches', rec.id)
due('leases', rec.lease_end, rec.id)
redis.call('SET', K.lock, rec.fence .. '|' .. A.worker .. '|' .. A.claim_id, 'PX', rec.lease_ms)
local newest = tonumber(redis.call('HGET', K.claimed, rec.queue) or '0')
if (rec.dispatched_at or 0) > newest then redis.call('HSET', K.claimed, rec.queue, rec.dispatched_at) end
finish('step.claimed', rec, 'granted')
return grant(given)
