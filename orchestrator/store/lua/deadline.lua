-- deadline: the run's time is up; first settle's own test, so that a run whose steps are all completed has succeeded
-- keys: run due
-- args: call_id
-- moves: run accepted | planning > failed; running > failing
-- reply ending: settle generation
-- reply too_late: status
-- reply waiting: status
-- reply unknown:
if not load_run() then
  not_due('deadlines')
  return { 'unknown' }
end
if run.ending_by == A.call_id then return { 'ending', num('ending_settle'), num('generation') } end
if not TERMINAL[run.status] and NOW < num('deadline_at') then
  due('deadlines', num('deadline_at'))
  return { 'waiting', run.status }
end
return end_by_decision('run.deadline', 'deadline', 'failed')
