-- complete_step: the holder commits; frees what waited for it, unless the run is ending
-- keys: run due lock
-- args: step_id fence claim_id result_text check_ms
-- moves: step running > completed; dependants pending > ready > dispatched
-- reply committed: version at_ms publish settle generation
-- reply fenced: current
-- reply unknown:
if not load_run() then return { 'unknown' } end
local rec = step_record(A.step_id)
if not rec then return { 'unknown' } end
local key = 'complete:' .. A.fence .. ':' .. A.claim_id
local kept = answered(rec, key)
if kept then return kept end
if not held(rec) or not (run.status == 'running' or run.status == 'failing') then return { 'fenced', rec.fence } end
complete(rec, A.result_text)
local reply = answer(rec, key, 'committed', fill_slots())
finish('step.committed', rec, 'committed')
return reply
