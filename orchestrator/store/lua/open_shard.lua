-- open_shard: the shard has been seen to; it belongs to this server and to our epoch, and is used from here on
-- identity: any
-- keys: restoring
-- args: judged token
-- moves: none
-- reply opened:
-- reply fenced:
if A.server ~= A.judged then return { 'fenced' } end
if known[1] == A.epoch and known[2] == A.server then return { 'opened' } end
if A.token == '' or redis.call('GET', K.restoring) ~= A.token then return { 'fenced' } end
redis.call('SET', K.server, A.server)
redis.call('SET', K.epoch, A.epoch)
redis.call('DEL', K.restoring)
return { 'opened' }
