-- The run: its hash, its version, its events, its places in `due`.
-- Users' JSON passes through as text and is never decoded here.

local RUN_MEMBER = A.session .. '|' .. A.run_id
local TERMINAL = { succeeded = true, failed = true, cancelled = true, dead_lettered = true,
  compensated = true, compensation_failed = true }

local run, changed, moved = {}, {}, {}

local function load_run()
  local flat = redis.call('HGETALL', K.state)
  for i = 1, #flat, 2 do run[flat[i]] = flat[i + 1] end
  return #flat > 0
end

local function num(field) return tonumber(run[field] or '0') end

-- Whether one of the keys in which the run lies is gone: each can be deleted by itself. Somebody builds it again.
-- A run that an older release admitted does not know how many of its steps need others, and are needed.
local function in_pieces()
  local total = num('total')
  return redis.call('HLEN', K.steps) ~= total or redis.call('HLEN', K.plan) ~= total
    or redis.call('HLEN', K.results) < num('n_completed') or redis.call('LLEN', K.ready) < num('n_ready')
    or (run.needing and redis.call('HLEN', K.needs) ~= num('needing'))
    or (run.needed and redis.call('HLEN', K.dependants) ~= num('needed')) or false
end

local function put(field, value)
  run[field] = tostring(value)
  changed[field] = true
end

local function count(field, by) put(field, num(field) + by) end

-- every key of a live run outlives the run's deadline by ttl_ms, and its last change by as much; confirm_end shortens it
local function keep(key)
  redis.call('PEXPIRE', key, math.max(num('deadline_at') - NOW, 0) + num('ttl_ms'))
end

local function keep_all()
  for _, name in ipairs(RUN_KEYS) do keep(K[name]) end
end

local function member(step_id) return step_id and (RUN_MEMBER .. '|' .. step_id) or RUN_MEMBER end
local function due(duty, at, step_id) redis.call('ZADD', K['due_' .. duty], at, member(step_id)) end
local function not_due(duty, step_id) redis.call('ZREM', K['due_' .. duty], member(step_id)) end

local function move_run(to)
  if not LEGAL_RUN[run.status .. '>' .. to] then
    error('illegal move of a run: ' .. run.status .. ' > ' .. to)
  end
  put('status', to)
end

-- One call is one version and one event, which names the steps it moved. The shard's `ledger` stream has it too: what
-- lies there is still to be brought to the ledger, which drops it when it has it.
local function publish_event(event, fields)
  put('version', num('version') + 1)
  local entry = { 'event', event, 'version', run.version, 'at', NOW, 'steps', table.concat(moved, ',') }
  for i = 1, #(fields or {}) do entry[#entry + 1] = fields[i] end
  redis.call('XADD', K.events, '*', unpack(entry))
  redis.call('XADD', K.ledger, '*', 'run', RUN_MEMBER, 'generation', run.generation, unpack(entry))
  keep(K.events)
end

local function save_run()
  local flat = {}
  for field in pairs(changed) do
    flat[#flat + 1] = field
    flat[#flat + 1] = run[field]
  end
  if #flat > 0 then redis.call('HSET', K.state, unpack(flat)) end
  -- beyond its deadline a run that is still being undone keeps itself alive, whole, by moving
  if NOW > num('deadline_at') and not TERMINAL[run.status] then keep_all() else keep(K.state) end
end

-- A closed run stays due until the ledger has its end (confirm_end).
local function end_run(status, reason)
  move_run(status)
  put('reason', reason)
  put('ended_at', NOW)
  not_due('deadlines')
  not_due('dispatches')
  not_due('retries')
  not_due('leases')
  not_due('undos')
  due('settles', NOW)
end

local function planning_holder(fence, claim)
  return run.status == 'planning' and num('plan_holder') == tonumber(fence) and run.plan_claim == claim
end

local function end_planning_claim()
  put('plan_holder', 0)
  put('plan_dead', 0)
  not_due('leases')
end

local function dispatch_plan(at)
  put('plan_dispatched_at', at)
  due('dispatches', at + tonumber(A.check_ms))
end

-- full jitter: anywhere between nothing and the doubled wait
local function jittered(base, longest, attempt)
  local wait = math.min(longest, base * 2 ^ math.max(0, attempt - 1))
  return NOW + math.floor(wait * tonumber(A.jitter))
end

-- What a call answered is kept, so that a repeat after a lost reply answers the same.
local function remembered(text, key)
  if not text then return nil end
  local kept = cjson.decode(text)
  if kept.key ~= key then return nil end
  return kept
end
