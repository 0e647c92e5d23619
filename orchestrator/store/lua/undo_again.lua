-- undo_again: a person has a step undone once more whose undo was given up, alone or with others of its run. The fence of
-- the undo that was given up names it: whatever has come of it since, it is begun again once.
-- keys: run due
-- args: step_id fence by call_id check_ms
-- moves: run compensation_failed > compensating, in a new generation; step compensation_failed > compensating
-- reply undoing: version at_ms publish settle generation
-- reply not_due: status
-- reply too_late: status
-- reply unknown:
if not load_run() then return { 'unknown' } end
local said = said_before()
if said then return said end
if run.status ~= 'compensation_failed' and run.status ~= 'compensating' then
  return say({ 'too_late', run.status })
end
-- what is left of it says too little; the ledger knows more, and has it built again
if in_pieces() then return { 'unknown' } end
local rec = step_record(A.step_id)
if not rec then return { 'unknown' } end
-- where an older release has built the run again it is not known which undo it was; none was begun again since
if rec.status ~= 'compensation_failed' or (rec.undo and rec.undo.fence ~= tonumber(A.fence)) then
  return say({ 'not_due', rec.status })
end

-- Of two that are undone again the one that needed the other comes first, unless the other is under way already.
local function withdraw(other)
  local undo = other.undo
  if not undo or other.undo_wait == 0 or not WITHDRAWN[undo.state] then return end
  if undo.state == 'dispatched' then count('active', -1) end
  not_due('dispatches', other.id)
  not_due('retries', other.id)
  redis.call('LREM', K.ready, 0, other.id)
  undo.state = 'waiting'
end

load_records()
if run.status == 'compensation_failed' then
  move_run('compensating')
  put('generation', num('generation') + 1)
  put('ended_at', 0)
  put('deadline_at', NOW) -- from here on the bound of its end is counted; a deadline ends no undo
  not_due('settles')
end
move(rec, 'compensating')
rec.undo = { state = 'waiting', attempt = 0, fence = 0, holder = 0 }
count('owed', 1)
give_turns()
for _, other in pairs(records) do withdraw(other) end
local sent = fill_slots()
publish_event('undo.again', { 'step_id', rec.id, 'by', A.by })
save_steps()
keep_all()
save_run()
return say({ 'undoing', num('version'), 0, to_publish(sent), 0, num('generation') })
