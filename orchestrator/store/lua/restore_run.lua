-- restore_run: build a run again from what the ledger knows of it. Its effect rows are closed up to `fence`.
-- A shard that is whole loses nothing to this: there, only a run is built that is not there, or is at a lower version
-- than was heard of before, which it can only be if it was begun anew, or of which a key is gone. So whoever comes late, or once more, finds it there.
-- identity: building
-- keys: restoring run due lock
-- args: judged token stage fence heard_generation heard_version field_count check_ms *words
-- words: field_count pairs of name and value for the run's hash; then for each step id record fact result error text
-- needs (fact: of the claim that is ended herewith, empty where there is none; needs: ids joined by commas)
-- moves: run (none) > accepted | running | failing | compensating; its steps to where their rows say they are
-- reply restored: version at_ms publish settle generation open queue limit_ms
-- reply exists: status
-- reply fenced:

local function stands()
  if not load_run() or in_pieces() then return false end
  if not whole then return num('fence') >= tonumber(A.fence) end
  local generation, heard = num('generation'), tonumber(A.heard_generation)
  return generation > heard or (generation == heard and num('version') >= tonumber(A.heard_version))
end

if stands() then return { 'exists', run.status } end

local WIDTH = 7
run = {}
for _, name in ipairs(RUN_KEYS) do redis.call('DEL', K[name]) end
for _, duty in ipairs({ 'leases', 'dispatches', 'retries', 'deadlines', 'settles', 'undos' }) do not_due(duty) end
local first = REST + 2 * tonumber(A.field_count)
for at = REST, first - 1, 2 do put(ARGV[at], ARGV[at + 1]) end
put('fence', A.fence)
put('active', 0)
due('deadlines', num('deadline_at'))

local function answer_restored(sent, settle, open)
  local plan = A.stage == 'accepted'
  return { 'restored', num('version'), 0, to_publish(sent), settle, num('generation'), open,
    plan and run.plan_queue or '', plan and num('plan_limit_ms') or 0 }
end

if A.stage == 'accepted' then
  run.status = 'accepted'
  put('status', 'accepted')
  if num('paused_at') == 0 then dispatch_plan(NOW) end
  publish_event('run.restored', { 'stage', A.stage })
  save_run()
  return answer_restored({}, 0, 0)
end

local claims, order, dependants = {}, {}, {}
local flat = { plan = {}, needs = {}, results = {}, errors = {}, dependants = {} }

local function add(name, field, value)
  if value ~= '' then
    flat[name][#flat[name] + 1] = field
    flat[name][#flat[name] + 1] = value
  end
end

local function load(at)
  local id, rec = ARGV[at], cjson.decode(ARGV[at + 1])
  rec.id, records[id] = id, rec
  touch(rec)
  order[#order + 1] = { rec = rec, needs = ARGV[at + 6] }
  for _, duty in ipairs({ 'leases', 'dispatches', 'retries', 'waits' }) do not_due(duty, id) end
  if ARGV[at + 2] == '' then
    add('results', id, ARGV[at + 3])
  else
    rec.status, rec.holder = 'running', tonumber(A.fence)
    claims[#claims + 1] = { rec = rec, fact = ARGV[at + 2], result = ARGV[at + 3] }
    count('active', 1)
  end
  count('n_' .. rec.status, 1)
  add('errors', id, ARGV[at + 4])
  add('plan', id, ARGV[at + 5])
  add('needs', id, ARGV[at + 6])
  for need in each(ARGV[at + 6]) do
    dependants[need] = dependants[need] or {}
    table.insert(dependants[need], id)
  end
end

for at = first, #ARGV, WIDTH do load(at) end
for need, ids in pairs(dependants) do add('dependants', need, table.concat(ids, ',')) end
put('needing', #flat.needs / 2)
put('needed', #flat.dependants / 2)
for name, words in pairs(flat) do
  for from = 1, #words, 1000 do
    redis.call('HSET', K[name], unpack(words, from, math.min(from + 999, #words)))
  end
end

run.status = A.stage == 'running' and 'running' or 'failing'
put('status', run.status)
for _, one in ipairs(order) do
  local rec = one.rec
  rec.waiting = 0
  for need in each(one.needs) do
    if records[need].status ~= 'completed' then rec.waiting = rec.waiting + 1 end
  end
end
for _, one in ipairs(order) do
  local rec = one.rec
  if rec.status == 'pending' and rec.waiting == 0 then make_ready(rec) end
  if rec.wait_until and (rec.status == 'waiting_approval' or rec.status == 'in_doubt') and run.status == 'running' then
    due('waits', rec.wait_until, rec.id)
  end
end
for _, claim in ipairs(claims) do
  local word = conclude_lost(claim.rec, claim.fact, claim.result)
  if word == 'failed' or word == 'in_doubt' then
    store_error(claim.rec, '{"kind":"worker_lost","message":"the state store forgot this attempt","path":null}')
  end
end
if A.stage == 'compensating' then begin_undoing() end
local sent = fill_slots()
local settle = due_settle()
publish_event('run.restored', { 'stage', A.stage, 'fence', A.fence })
save_steps()
save_run()
keep_all()
return answer_restored(sent, settle, num('total') - num('n_completed'))
