-- resolve: a person has looked, and says what became of a step in doubt; its effect row says so already
-- keys: run due
-- args: step_id fence generation by landed result_text call_id check_ms
-- moves: step in_doubt > completed (landed 1), or (landed 0) > ready > dispatched while the run is running, else > skipped
-- reply committed: version at_ms publish settle generation
-- reply again: version at_ms publish settle generation
-- reply skipped: version at_ms publish settle generation
-- reply not_due: status
-- reply not_closed:
-- reply other_generation: generation
-- reply unknown:
if not load_run() then return { 'unknown' } end
local said = said_before()
if said then return said end
if num('generation') ~= tonumber(A.generation) then return { 'other_generation', num('generation') } end
local rec = step_record(A.step_id)
if not rec then return { 'unknown' } end
-- while its run is undone the step is undone like the others; after that there is nothing left to settle
local settleable = { running = true, failing = true, failed = true, cancelled = true }
if not settleable[run.status] then return say({ 'not_due', run.status }) end
if rec.status ~= 'in_doubt' then return say({ 'not_due', rec.status }) end
if rec.fence ~= tonumber(A.fence) then return say({ 'not_closed' }) end -- the word is about an earlier attempt
not_due('waits', rec.id)
rec.resolved_by, rec.given_up = A.by, nil
local word = 'skipped'
if A.landed == '1' then
  word = 'committed'
  move(rec, 'completed')
  store_result(rec, A.result_text)
  redis.call('HDEL', K.errors, rec.id)
  if run.status == 'running' then free_dependants(rec) end
else
  rec.touched = nil
  if run.status == 'running' then
    word = 'again'
    rec.attempt = 0
    make_ready(rec, true)
  else
    move(rec, 'skipped')
  end
end
local reply = answer(rec, 'resolve:' .. A.call_id, word, fill_slots())
finish('step.resolved', rec, word)
return say(reply)
