-- fail_undo: the holder's undo failed, after closing its effect row (fact). reason: why it is given back, not an attempt
-- keys: run due lock
-- args: step_id fence claim_id fact error retryable reason delay_ms max_times min_age_ms most_age_ms jitter check_ms
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

-- No deadline ends an undo: it is put off at most so often, beyond a time, and where most_age_ms says so at most so long.
local function put_off()
  rec.undo.handed_back = rec.undo.handed_back or {}
  local back = rec.undo.handed_back[A.reason] or { times = 0, since = NOW }
  back.times = back.times + 1
  rec.undo.handed_back[A.reason] = back
  rec.undo.attempt = rec.undo.attempt - 1
  local age, most = NOW - back.since, tonumber(A.most_age_ms)
  local often = back.times > tonumber(A.max_times) and age >= tonumber(A.min_age_ms)
  local delay = tonumber(A.delay_ms)
  if most > 0 then delay = math.min(delay, most - age) end
  return not (often or (most > 0 and age >= most)), NOW + delay
end

local at = 0
store_undo_error(rec, A.error)
local may_retry, put_off_to = A.retryable == '1', nil
if A.reason ~= '' then may_retry, put_off_to = put_off() end
local word = conclude_undo(rec, A.fact, may_retry, function(again)
  at = put_off_to or jittered(again.backoff_ms, again.backoff_max_ms, again.undo.attempt)
  return undo_back_off(again, at)
end)
local reply = answer(rec, key, word, fill_slots(), at)
finish_undo('undo.' .. (word == 'retry_at' and 'retry' or word), rec, word)
return reply
