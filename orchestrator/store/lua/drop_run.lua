-- drop_run: forget a run that this store believes to be under way, and the ledger knows to have ended
-- identity: building
-- keys: restoring run due
-- args: judged token
-- moves: none
-- reply dropped:
-- reply fenced:
-- reply unknown:
if whole then return { 'fenced' } end
load_records()
local duties = { 'leases', 'dispatches', 'retries', 'deadlines', 'settles', 'undos', 'waits' }
for _, duty in ipairs(duties) do
  not_due(duty)
  for id in pairs(records) do not_due(duty, id) end
end
local gone = 0
for _, name in ipairs(RUN_KEYS) do gone = gone + redis.call('DEL', K[name]) end
return { gone > 0 and 'dropped' or 'unknown' }
