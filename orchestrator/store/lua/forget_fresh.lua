-- forget_fresh: take a run back that was created a moment ago and has not moved since
-- keys: run due
-- args:
-- moves: none
-- reply forgotten:
-- reply moved_on: status
-- reply unknown:
if not load_run() then return { 'unknown' } end
if run.status ~= 'accepted' or num('version') ~= 1 then return { 'moved_on', run.status } end
for _, duty in ipairs({ 'dispatches', 'deadlines' }) do not_due(duty) end
for _, name in ipairs(RUN_KEYS) do redis.call('DEL', K[name]) end
return { 'forgotten' }
