-- accept_run: the run goes on, on a server that may have lost its last moments: fences go `ahead`, and to `least` at
-- least, and an idempotent step that may have begun in them, without a row to show for it, is not taken for untouched
-- identity: building
-- keys: restoring run due
-- args: judged token ahead least call_id
-- moves: none
-- reply accepted: fence
-- reply fenced:
-- reply unknown:
if not load_run() then return { 'unknown' } end
-- further ahead than once would be where the next who builds the shard begins
if run.accepted_by == A.call_id then return { 'accepted', num('fence') } end
put('accepted_by', A.call_id)
local SENT = { ready = true, dispatched = true, backoff = true }
put('fence', math.max(num('fence') + tonumber(A.ahead), tonumber(A.least)))
if run.status == 'running' then load_records() end
for _, rec in pairs(records) do
  if rec.effect == 'idempotent' and SENT[rec.status] then
    rec.touched = true
    touch(rec)
  end
end
save_steps()
save_run()
keep_all() -- also of one that has ended: it lives whole, or not at all
return { 'accepted', num('fence') }
