-- fail_step: the holder reports that its attempt failed, after closing its effect row (fact)
-- keys: run due lock
-- args: step_id fence claim_id fact error retryable result_text delay_ms jitter check_ms
-- moves: step running > backoff | completed | failed | in_doubt | skipped
-- reply retry_at: version at_ms publish settle generation
-- reply committed: version at_ms publish settle generation
-- reply failed: version at_ms publish settle generation
-- reply skipped: version at_ms publish settle generation
-- reply in_doubt: version at_ms publish settle generation
-- reply fenced: current
-- reply unknown:
if not load_run() then return { 'unknown' } end
local rec = step_record(A.step_id)
if not rec then return { 'unknown' } end
local key = 'fail:' .. A.fence .. ':' .. A.claim_id
local kept = answered(rec, key)
if kept then return kept end
if not held(rec) or not (run.status == 'running' or run.status == 'failing') then return { 'fenced', rec.fence } end

local at = 0
store_error(rec, A.error)
local word = conclude(rec, A.fact, A.retryable == '1', function(again)
  at = math.max(jittered(again.backoff_ms, again.backoff_max_ms, again.attempt), NOW + tonumber(A.delay_ms))
  again.not_before = at
  move(again, 'backoff')
  due('retries', at, again.id)
  return 'retry_at'
end)
local reply = answer(rec, key, word, fill_slots(), at)
finish('step.' .. (word == 'retry_at' and 'retry' or word), rec, word)
return reply
