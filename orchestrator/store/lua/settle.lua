-- settle: close a run in which nothing moves any more
-- keys: run due
-- args: generation
-- moves: run running > succeeded; failing > failed | cancelled
-- reply settled: status reason version generation ended_at
-- reply waiting: status
-- reply other_generation: generation
-- reply unknown:
if not load_run() then
  not_due('settles')
  return { 'unknown' }
end
if num('generation') ~= tonumber(A.generation) then return { 'other_generation', num('generation') } end

local function answer_settled()
  return { 'settled', run.status, run.reason, num('version'), num('generation'), num('ended_at') }
end

if TERMINAL[run.status] then return answer_settled() end
if not settled() then
  not_due('settles')
  return { 'waiting', run.status }
end
if run.status == 'running' then
  end_run('succeeded', '')
else
  end_run(run.reason == 'cancel' and 'cancelled' or 'failed', run.reason)
end
publish_event('run.' .. run.status, { 'reason', run.reason })
save_run()
return answer_settled()
