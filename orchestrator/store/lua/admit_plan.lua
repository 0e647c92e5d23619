-- admit_plan: store the steps of an accepted plan and free those that need nothing
-- keys: run due
-- args: fence claim_id plan_id plan_hash max_parallel inputs_bytes total check_ms *steps
-- each step: id index action effect text token needs refs queue max_attempts lease_ms limit_ms backoff_ms backoff_max_ms approval probe (needs, refs: ids joined by commas)
-- moves: run planning > running; step (none) > pending > ready > dispatched
-- reply admitted: version publish total generation
-- reply fenced: current
-- reply unknown:
if not load_run() then return { 'unknown' } end
if run.admitted_by == A.claim_id then
  return { 'admitted', num('version'), to_publish(kept_sent('admit')), num('total'), num('generation') }
end
if not planning_holder(A.fence, A.claim_id) then return { 'fenced', num('plan_holder') } end

local WIDTH = 16
local dependants, texts, needs, needing, needed = {}, {}, {}, 0, 0

local function flush(key, flat)
  if #flat > 0 then
    redis.call('HSET', key, unpack(flat))
    keep(key)
  end
  return {}
end

local function new_record(at)
  local waiting = 0
  for need in each(ARGV[at + 6]) do
    waiting = waiting + 1
    dependants[need] = dependants[need] or {}
    table.insert(dependants[need], ARGV[at])
  end
  return {
    id = ARGV[at], index = tonumber(ARGV[at + 1]), action = ARGV[at + 2], effect = ARGV[at + 3], token = ARGV[at + 5],
    refs = ARGV[at + 7], queue = ARGV[at + 8], max_attempts = tonumber(ARGV[at + 9]),
    lease_ms = tonumber(ARGV[at + 10]), limit_ms = tonumber(ARGV[at + 11]), backoff_ms = tonumber(ARGV[at + 12]),
    backoff_max_ms = tonumber(ARGV[at + 13]), status = 'pending', waiting = waiting, attempt = 0, fence = 0,
    holder = 0, group = 0, approval = ARGV[at + 14] ~= '' and ARGV[at + 14] or nil,
    probe = ARGV[at + 15] == '1' or nil,
  }
end

put('total', A.total)
put('n_pending', A.total)
put('max_parallel', A.max_parallel)
put('inputs_bytes', A.inputs_bytes)
put('plan_id', A.plan_id)
put('plan_hash', A.plan_hash)
move_run('running')
end_planning_claim()
for at = REST, #ARGV, WIDTH do
  local rec = new_record(at)
  records[rec.id] = rec
  touch(rec)
  texts[#texts + 1] = rec.id
  texts[#texts + 1] = ARGV[at + 4]
  if #texts >= 1000 then texts = flush(K.plan, texts) end
  if rec.waiting > 0 then
    needing = needing + 1
    needs[#needs + 1] = rec.id
    needs[#needs + 1] = ARGV[at + 6]
    if #needs >= 1000 then needs = flush(K.needs, needs) end
  else
    make_ready(rec)
  end
end
flush(K.plan, texts)
flush(K.needs, needs)
local flat = {}
for need, ids in pairs(dependants) do
  needed = needed + 1
  flat[#flat + 1] = need
  flat[#flat + 1] = table.concat(ids, ',')
  if #flat >= 1000 then flat = flush(K.dependants, flat) end
end
flush(K.dependants, flat)
put('needing', needing)
put('needed', needed)
local sent = fill_slots()
put('admitted_by', A.claim_id)
keep_sent('admit', sent)
publish_event('plan.admitted', { 'plan_hash', A.plan_hash, 'fence', A.fence })
save_steps()
keep(K.steps)
save_run()
return { 'admitted', num('version'), to_publish(sent), num('total'), num('generation') }
