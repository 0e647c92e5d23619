-- Steps: one JSON record each (ours, never users' data), moved only along the machine's table.

local records, dirty = {}, {}

local function step_record(id)
  if records[id] == nil then
    local text = redis.call('HGET', K.steps, id)
    if not text then return nil end
    records[id] = cjson.decode(text)
    records[id].id = id
  end
  return records[id]
end

local function touch(rec) dirty[rec.id] = rec end

local function save_steps()
  local flat = {}
  for id, rec in pairs(dirty) do
    rec.id = nil
    flat[#flat + 1] = id
    flat[#flat + 1] = cjson.encode(rec)
    rec.id = id
    if #flat >= 1000 then redis.call('HSET', K.steps, unpack(flat)); flat = {} end
  end
  if #flat > 0 then redis.call('HSET', K.steps, unpack(flat)) end
end

local function move(rec, to)
  if not LEGAL_STEP[rec.status .. '>' .. to] then
    error('illegal move of a step: ' .. rec.status .. ' > ' .. to)
  end
  count('n_' .. rec.status, -1)
  count('n_' .. to, 1)
  rec.status = to
  touch(rec)
  moved[#moved + 1] = rec.id .. '=' .. to .. '/' .. rec.attempt .. '/' .. rec.fence
end

local function each(csv)
  return string.gmatch(csv or '', '[^,]+')
end

-- what a message of this step asks for now
local function is_sent(rec)
  if run.status == 'running' then
    move(rec, 'dispatched')
  else
    rec.undo.state = 'dispatched'
    if rec.status ~= 'compensating' then move(rec, 'compensating') end
  end
end

-- ready steps (while undoing: steps whose turn has come) that find a slot (max_parallel) are sent; answers their ids
local function fill_slots()
  local sent = {}
  local going = (run.status == 'running' and num('paused_at') == 0) or run.status == 'compensating'
  while going and num('active') < num('max_parallel') do
    local id = redis.call('LPOP', K.ready)
    if not id then break end
    local rec = step_record(id)
    is_sent(rec)
    rec.dispatched_at, rec.checks = NOW, 0
    touch(rec)
    due('dispatches', NOW + tonumber(A.check_ms), id)
    count('active', 1)
    sent[#sent + 1] = id
  end
  return sent
end

-- the step is given up: a letter is owed, which the end of the run waits for
local function owe_letter(rec, why, cause)
  if type(rec.given_up) ~= 'table' then rec.given_up = {} end
  table.insert(rec.given_up, { generation = num('generation'), why = why, cause = cause })
  touch(rec)
end

-- a person is asked, and has wait_ms to answer; then it counts as failure (wait_over)
local function wait_for_person(rec)
  rec.waiting_since, rec.wait_until = NOW, NOW + num('wait_ms')
  touch(rec)
  due('waits', rec.wait_until, rec.id)
end

local function make_ready(rec, first)
  if rec.approval == 'needed' then
    move(rec, 'waiting_approval')
    wait_for_person(rec)
    return
  end
  move(rec, 'ready')
  redis.call(first and 'LPUSH' or 'RPUSH', K.ready, rec.id)
  keep(K.ready)
end

local function free_dependants(rec)
  for id in each(redis.call('HGET', K.dependants, rec.id)) do
    local other = step_record(id)
    other.waiting = other.waiting - 1
    touch(other)
    if other.waiting == 0 and other.status == 'pending' then make_ready(other) end
  end
end

local function to_publish(ids)
  local out = {}
  for _, id in ipairs(ids) do
    local rec = step_record(id)
    out[#out + 1] = { id, rec.index, rec.queue, rec.limit_ms, run.status == 'compensating' and 'undo' or 'step' }
  end
  return out
end

-- Which steps a call on the whole run sent, for its repeat. Kept apart from the run's hash, which every call loads.
local function keep_sent(call, ids)
  redis.call('HSET', K.sent, call, table.concat(ids, ','))
  keep(K.sent)
end

local function kept_sent(call)
  local ids = {}
  for id in each(redis.call('HGET', K.sent, call) or '') do ids[#ids + 1] = id end
  return ids
end

-- What a person decided is carried out once, and has one answer: whoever was frozen with it may ask long after others
-- have decided otherwise.
local function said_before()
  local reply = redis.call('HGET', K.sent, A.call_id)
  return reply and cjson.decode(reply) or nil
end

local function say(reply)
  redis.call('HSET', K.sent, A.call_id, cjson.encode(reply))
  keep(K.sent)
  return reply
end

-- true when nothing of the run moves any more without `settle`
local function settled()
  if run.status == 'running' then return num('n_completed') == num('total') end
  if run.status == 'compensating' then return num('owed') == 0 end
  return run.status == 'failing' and num('n_running') == 0
end

-- a failing run that is to be undone is trigger-compensation's business, any other end that of settle-runs
local function settle_duty()
  return run.status == 'failing' and run.on_failure == 'compensate' and 'undos' or 'settles'
end

-- `settle` is published by whoever is told so; a second later it is due all the same
local function due_settle()
  if settled() then
    due(settle_duty(), NOW + 1000)
    return 1
  end
  return TERMINAL[run.status] and 1 or 0
end

local function end_claim_of(rec)
  rec.holder, rec.dead = 0, nil
  rec.ended_at = NOW
  touch(rec)
  not_due('leases', rec.id)
  count('active', -1)
  redis.call('DEL', K.lock)
end

local IDLE_STEP = { pending = true, waiting_approval = true, ready = true, dispatched = true, backoff = true }

local function load_records()
  local flat = redis.call('HGETALL', K.steps)
  for i = 1, #flat, 2 do
    if not records[flat[i]] then
      records[flat[i]] = cjson.decode(flat[i + 1])
      records[flat[i]].id = flat[i]
    end
  end
end

-- running -> failing, in one call. What never started is skipped; what some attempt may have done stays in doubt.
local function leave_running(why)
  if run.status ~= 'running' then return end
  load_records()
  for _, rec in pairs(records) do
    local status = rec.status
    if rec.wait_until then not_due('waits', rec.id) end
    if IDLE_STEP[status] then
      if status == 'dispatched' then count('active', -1) end
      move(rec, rec.touched and 'in_doubt' or 'skipped')
      rec.ended_at = NOW
      not_due('dispatches', rec.id)
      not_due('retries', rec.id)
    end
  end
  redis.call('DEL', K.ready)
  move_run('failing')
  put('reason', why)
end

local function store_result(rec, text)
  redis.call('HSET', K.results, rec.id, text)
  keep(K.results)
end

local function store_error(rec, text)
  redis.call('HSET', K.errors, rec.id, text)
  keep(K.errors)
end

-- It may not start, or start again. What an earlier attempt may have done stays in doubt.
local function give_up_idle(rec, why, error)
  store_error(rec, error)
  rec.ended_at = NOW
  move(rec, rec.touched and 'in_doubt' or 'failed')
  leave_running(why .. ':' .. rec.id)
end

local function complete(rec, text)
  end_claim_of(rec)
  move(rec, 'completed')
  store_result(rec, text)
  redis.call('HDEL', K.errors, rec.id)
  if run.status == 'running' then free_dependants(rec) end
end

-- A claim ends without a commit; its effect row has been closed and answered `fact`: none, maybe or landed.
-- The one place that decides what becomes of the step. may_retry: the error allows another attempt.
-- again(rec): what "again" means for this caller. result: of an effect that landed, where the caller has several.
-- Answers a word.
local function conclude(rec, fact, may_retry, again, result)
  if fact == 'landed' then
    complete(rec, result or A.result_text)
    return 'committed'
  end
  rec.touched = rec.touched or fact == 'maybe' or nil
  end_claim_of(rec)
  local unsafe = rec.effect == 'once' and fact == 'maybe'
  if run.status == 'running' and may_retry and rec.attempt < rec.max_attempts and not unsafe then
    return again(rec)
  end
  if rec.touched then
    move(rec, 'in_doubt')
    if run.status == 'running' and run.on_doubt == 'wait' then
      wait_for_person(rec)
    else
      leave_running('in_doubt:' .. rec.id)
    end
    return 'in_doubt'
  end
  if run.status ~= 'running' then
    move(rec, 'skipped')
    return 'skipped'
  end
  move(rec, 'failed')
  leave_running('step_failed:' .. rec.id)
  return 'failed'
end

-- the same for an attempt whose process is gone: about what it leaves given up nobody writes a letter at once, unless a
-- person is asked
local function conclude_lost(rec, fact, result)
  local healthy = run.status == 'running'
  local word = conclude(rec, fact, true, function(again)
    make_ready(again, true)
    return 'again'
  end, result)
  local doubtful = rec.effect == 'once' and fact == 'maybe'
  if healthy and (word == 'failed' or word == 'in_doubt') and not (doubtful and run.on_doubt == 'wait') then
    owe_letter(rec, doubtful and 'in_doubt' or 'retry_exhausted', 'given_up')
  end
  return word
end

-- The answer of every call that ends a claim: word, version, at, publish, settle; kept in the record for a repeat.
local function answer(rec, key, word, sent, at)
  local reply = { key = key, word = word, at = at or 0, sent = table.concat(sent, ','), settle = due_settle(),
    version = num('version') + 1 }
  rec.reply = reply
  touch(rec)
  return { word, reply.version, reply.at, to_publish(sent), reply.settle, num('generation') }
end

local function answered(rec, key)
  local kept = rec.reply
  if not kept or kept.key ~= key then return nil end
  local ids = {}
  for id in each(kept.sent) do ids[#ids + 1] = id end
  return { kept.word, kept.version, kept.at, to_publish(ids), kept.settle, num('generation') }
end

local function held(rec)
  return rec.status == 'running' and rec.holder == tonumber(A.fence) and rec.claim == A.claim_id
end

local function finish(event, rec, word)
  publish_event(event, { 'step_id', rec.id, 'attempt', rec.attempt, 'fence', rec.fence, 'worker_id', rec.worker or '',
    'policy_hash', run.policy_hash, 'outcome', word })
  save_steps()
  save_run()
end

-- Cancel and deadline: the same move. They close no running claim: holders stop at their next renewal.
local function end_by_decision(event, why, early_status)
  if TERMINAL[run.status] then
    not_due('deadlines')
    return { 'too_late', run.status }
  end
  if run.status == 'failing' or run.status == 'compensating' then
    if why == 'deadline' then due('deadlines', NOW + 60000) end
    return { 'waiting', run.status }
  end
  if run.status == 'running' and settled() then
    due('settles', NOW)
    return { 'too_late', run.status }
  end
  if run.status == 'running' then
    leave_running(why)
  else
    if run.status == 'planning' then end_planning_claim() end
    end_run(early_status, why)
  end
  put('ending_by', A.call_id)
  put('ending_settle', due_settle())
  publish_event(event, { 'reason', why })
  save_steps()
  save_run()
  return { 'ending', num('ending_settle'), num('generation') }
end
