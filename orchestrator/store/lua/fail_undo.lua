-- fail_undo: the holder's undo failed, after closing its effect row (fact). counted 0: given back, not an attempt
-- keys: run due lock
-- args: step_id fence claim_id fact error retryable counted delay_ms jitter check_ms
-- moves: step compensating > compensated | compensation_failed
-- reply retry_at: version at_ms publish settle generation
-- reply committed: version at_ms publish settle generation
-- reply given_up: version at_ms publish settle generation
-- reply fenced: current
-- reply unknown:
if not load_run() then return { 'unknown' } end
local rec = step_record(A.step_id)
if not rec then return { 'unknown' } end
local key = 'undo_failed:' .. A.fence .. ':' .. A.claim_id
local kept = answered(rec, key)
if kept then return kept end
if not rec.undo or not undo_held(rec) then return { 'fenced', rec.undo and rec.undo.fence or 0 } end

local MOST_GIVEN_BACK = 1000
local at = 0
store_undo_error(rec, A.error)
if A.counted == '0' then
  rec.undo.given_back = (rec.undo.given_back or 0) + 1
  if rec.undo.given_back <= MOST_GIVEN_BACK then rec.undo.attempt = rec.undo.attempt - 1 end
end
local word = conclude_undo(rec, A.fact, A.retryable == '1', function(again)
  at = A.counted == '0' and NOW + tonumber(A.delay_ms)
    or jittered(again.backoff_ms, again.backoff_max_ms, again.undo.attempt)
  return undo_back_off(again, at)
end)
local reply = answer(rec, key, word, fill_slots(), at)
finish_undo('undo.' .. (word == 'retry_at' and 'retry' or word), rec, word)
return reply
