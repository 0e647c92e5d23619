-- pause: nothing new of the run starts until somebody resumes it; what runs goes on, and the deadline too
-- keys: run due
-- args: generation by call_id
-- moves: none (a flag)
-- reply paused: since
-- reply too_late: status
-- reply other_generation: generation
-- reply unknown:
if not load_run() then return { 'unknown' } end
if num('generation') ~= tonumber(A.generation) then return { 'other_generation', num('generation') } end
if run.status ~= 'accepted' and run.status ~= 'planning' and run.status ~= 'running' then
  return { 'too_late', run.status }
end
if num('paused_at') > 0 then return { 'paused', num('paused_at') } end
if run.paused_by_call == A.call_id then return { 'paused', num('paused_since') } end
put('paused_at', NOW)
put('paused_since', NOW)
put('paused_by_call', A.call_id)
put('paused_by', A.by)
publish_event('run.paused', { 'by', A.by })
save_run()
return { 'paused', NOW }
