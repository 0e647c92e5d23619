-- confirm_end: the ledger has the end of the run: it leaves `due`, and its keys get their last lifetime
-- keys: run due
-- args: generation ttl_ms
-- moves: none
-- reply confirmed:
-- reply waiting: status
-- reply other_generation: generation
-- reply unknown:
if not load_run() then
  not_due('settles')
  return { 'unknown' }
end
if num('generation') ~= tonumber(A.generation) then return { 'other_generation', num('generation') } end
if not TERMINAL[run.status] then return { 'waiting', run.status } end
for _, duty in ipairs({ 'settles', 'undos', 'deadlines', 'dispatches', 'retries', 'leases' }) do not_due(duty) end
for _, name in ipairs(RUN_KEYS) do redis.call('PEXPIRE', K[name], A.ttl_ms) end
return { 'confirmed' }
