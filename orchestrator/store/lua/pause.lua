-- pause: nothing new of the run starts until somebody resumes it; what runs goes on, and the deadline too
-- keys: run due
-- args: generation by call_id
-- moves: none (a flag)
-- reply paused: since
-- reply too_late: status
-- reply other_generation: generation
-- reply unknown:
if not load_run() then return { 'unknown' } end
local said = said_before()
if said then return said end
if num('generation') ~= tonumber(A.generation) then return { 'other_generation', num('generation') } end
if run.status ~= 'accepted' and run.status ~= 'planning' and run.status ~= 'running' then
  return say({ 'too_late', run.status })
end
if num('paused_at') > 0 then return say({ 'paused', num('paused_at') }) end
put('paused_at', NOW)
put('paused_by', A.by)
publish_event('run.paused', { 'by', A.by })
save_run()
return say({ 'paused', NOW })
