-- cancel: somebody decided, in this generation, that the run shall end
-- keys: run due
-- args: generation call_id
-- moves: run accepted | planning > cancelled; running > failing
-- reply ending: settle generation
-- reply too_late: status
-- reply waiting: status
-- reply other_generation: generation
-- reply unknown:
if not load_run() then return { 'unknown' } end
local said = said_before()
if said then return said end
if num('generation') ~= tonumber(A.generation) then return { 'other_generation', num('generation') } end
return say(end_by_decision('run.cancel', 'cancelled', 'cancelled'))
