-- begin_restore: a shard that is not whole is the caller's to judge and to build, until somebody else begins or its data
-- are exchanged. New transitions get ids from `next` on, if there is one, whatever the server's clock says.
-- identity: any
-- keys: restoring ledger
-- args: judged cause token next
-- moves: none
-- reply begun:
-- reply whole:
-- reply other:
if A.server ~= A.judged or (known[1] == false) ~= (A.cause == 'amnesia') then return { 'other' } end
if known[1] and known[1] ~= A.epoch then return { 'other' } end
if known[2] == A.server and known[1] then return { 'whole' } end
redis.call('SET', K.restoring, A.token)
-- refused where the stream is further on; an entry that tells of nothing is never seen, in the same command it is gone
if A.next ~= '' then redis.pcall('XADD', K.ledger, 'MAXLEN', 0, A.next, 'run', '') end
return { 'begun' }
