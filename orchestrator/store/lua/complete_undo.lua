-- complete_undo: the holder reports that the step is undone; those it needed have their turn
-- keys: run due lock
-- args: step_id fence claim_id check_ms
-- moves: step compensating > compensated
-- reply committed: version at_ms publish settle generation
-- reply fenced: current
-- reply unknown:
if not load_run() then return { 'unknown' } end
local rec = step_record(A.step_id)
if not rec then return { 'unknown' } end
local key = 'undone:' .. A.fence .. ':' .. A.claim_id
local kept = answered(rec, key)
if kept then return kept end
if not rec.undo or not undo_held(rec) then return { 'fenced', rec.undo and rec.undo.fence or 0 } end
undone(rec)
local reply = answer(rec, key, 'committed', fill_slots())
finish_undo('undo.committed', rec, 'committed')
return reply
