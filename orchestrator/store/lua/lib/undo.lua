-- Undoing. Once nothing of a failing run runs any more, what its steps did is undone, each step once, none before
-- everything that needed it. A step's undo has a claim of its own, kept in rec.undo: state, attempt, fence, holder …
-- One that a person has begun again is `waiting` until its turn comes once more.

local WITHDRAWN = { ready = true, dispatched = true, backoff = true }

local function owes(rec)
  return rec.status == 'in_doubt' or rec.status == 'compensating'
    or (rec.status == 'completed' and rec.effect ~= 'pure')
end

-- The turn of a step comes when every step that needed it is undone, or had nothing to undo. Steps without anything
-- to undo only pass the turn on.
local function pass_turn(first)
  local turns = { first }
  while #turns > 0 do
    local rec = table.remove(turns)
    if owes(rec) then
      if not rec.undo or rec.undo.state == 'waiting' then
        rec.undo = rec.undo or { attempt = 0, fence = 0, holder = 0 }
        rec.undo.state = 'ready'
        touch(rec)
        redis.call('RPUSH', K.ready, rec.id)
        keep(K.ready)
      end
    else
      for id in each(redis.call('HGET', K.needs, rec.id)) do
        local need = step_record(id)
        need.undo_wait = need.undo_wait - 1
        touch(need)
        if need.undo_wait == 0 then turns[#turns + 1] = need end
      end
    end
  end
end

local function any_owed()
  load_records()
  for _, rec in pairs(records) do
    if owes(rec) then return true end
  end
  return false
end

-- From the last steps of each branch on; one that is under way has had its turn.
local function give_turns()
  local last = {}
  for id, rec in pairs(records) do
    rec.undo_wait = 0
    for _ in each(redis.call('HGET', K.dependants, id)) do rec.undo_wait = rec.undo_wait + 1 end
    if rec.undo_wait == 0 then last[#last + 1] = rec end
    touch(rec)
  end
  table.sort(last, function(a, b) return a.index > b.index end)
  for _, rec in ipairs(last) do pass_turn(rec) end
end

local function begin_undoing()
  move_run('compensating')
  local owed = 0
  for _, rec in pairs(records) do
    if owes(rec) then owed = owed + 1 end
  end
  put('owed', owed)
  give_turns()
end

local function undo_held(rec)
  local undo = rec.undo
  return rec.status == 'compensating' and undo.state == 'running' and undo.holder == tonumber(A.fence)
    and undo.claim == A.claim_id
end

local function end_undo_claim(rec)
  rec.undo.holder, rec.undo.dead, rec.undo.ended_at = 0, nil, NOW
  touch(rec)
  not_due('leases', rec.id)
  count('active', -1)
  redis.call('DEL', K.lock)
end

-- apart from the error of the step itself, which is why there is something to undo
local function store_undo_error(rec, text)
  redis.call('HSET', K.errors, rec.id .. '.undo', text)
  keep(K.errors)
end

-- an undo is over, well or not: those that the step needed have their turn, unless one that needed the step is undone
-- again by now
local function undo_over(rec, status)
  end_undo_claim(rec)
  rec.undo.state = 'over'
  move(rec, status)
  count('owed', -1)
  if rec.undo_wait == 0 then pass_turn(rec) end
end

local function undone(rec)
  undo_over(rec, 'compensated')
  redis.call('HDEL', K.errors, rec.id .. '.undo')
end

-- the same decision for every way an undo's claim ends without a commit. tries: attempts that count
local function conclude_undo(rec, fact, may_retry, again)
  if fact == 'landed' then
    undone(rec)
    return 'committed'
  end
  local unsafe = rec.effect == 'once' and fact == 'maybe'
  if may_retry and rec.undo.attempt < math.max(2, rec.max_attempts) and not unsafe then
    end_undo_claim(rec)
    return again(rec)
  end
  undo_over(rec, 'compensation_failed')
  return 'given_up'
end

local function undo_back_off(rec, at)
  rec.undo.state, rec.undo.not_before = 'backoff', at
  due('retries', at, rec.id)
  return 'retry_at'
end

-- unless a step that needed it is undone again since this undo was given out: then it waits for its turn
local function undo_ready(rec)
  if rec.undo_wait > 0 then
    rec.undo.state = 'waiting'
    return 'again'
  end
  rec.undo.state = 'ready'
  redis.call('LPUSH', K.ready, rec.id)
  keep(K.ready)
  return 'again'
end

local function finish_undo(event, rec, word)
  publish_event(event, { 'step_id', rec.id, 'attempt', rec.undo.attempt, 'fence', rec.undo.fence,
    'worker_id', rec.undo.worker or '', 'policy_hash', run.policy_hash, 'outcome', word })
  save_steps()
  save_run()
end
