-- hand_back: the holder gives the attempt back, not counted, after closing its effect row where the action had begun
-- keys: run due lock
-- args: step_id fence claim_id fact reason delay_ms max_times min_age_ms error result_text check_ms
-- moves: step running > backoff | completed | failed | in_doubt | skipped
-- reply retry_at: version at_ms publish settle generation
-- reply committed: version at_ms publish settle generation
-- reply too_often: version at_ms publish settle generation
-- reply skipped: version at_ms publish settle generation
-- reply in_doubt: version at_ms publish settle generation
-- reply fenced: current
-- reply unknown:
if not load_run() then return { 'unknown' } end
local rec = step_record(A.step_id)
if not rec then return { 'unknown' } end
local key = 'back:' .. A.fence .. ':' .. A.claim_id
local kept = answered(rec, key)
if kept then return kept end
if not held(rec) or not (run.status == 'running' or run.status == 'failing') then return { 'fenced', rec.fence } end

rec.handed_back = rec.handed_back or {}
local back = rec.handed_back[A.reason] or { times = 0, since = NOW }
back.times = back.times + 1
rec.handed_back[A.reason] = back
local often = back.times > tonumber(A.max_times) and NOW - back.since >= tonumber(A.min_age_ms)
local at = 0
rec.attempt = rec.attempt - 1
store_error(rec, A.error)
local word = conclude(rec, A.fact, not often, function(again)
  at = NOW + tonumber(A.delay_ms)
  again.not_before = at
  move(again, 'backoff')
  due('retries', at, again.id)
  return 'retry_at'
end)
if word == 'failed' and often then word = 'too_often' end
local reply = answer(rec, key, word, fill_slots(), at)
finish('step.handed_back', rec, word)
return reply
