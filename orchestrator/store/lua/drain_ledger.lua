-- drain_ledger: the next transitions the ledger does not have, from the id `next` on; those before it are dropped
-- keys: ledger
-- args: next count
-- moves: none
-- reply entries: entries left
redis.call('XTRIM', K.ledger, 'MINID', A.next)
local found = redis.call('XRANGE', K.ledger, A.next, '+', 'COUNT', tonumber(A.count))
return { 'entries', found, redis.call('XLEN', K.ledger) - #found }
