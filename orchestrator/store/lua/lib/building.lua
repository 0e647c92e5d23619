-- Whether the caller may write in a shard that he builds again: it is on the server he judged, and still has his token. A
-- flush, an older copy, another who began, and its opening all take that away. Without a token: whether the shard is whole.

local whole = known[1] == A.epoch and known[2] == A.server
if A.server ~= A.judged then return { 'fenced' } end
if A.token == '' and not whole then return { 'fenced' } end
if A.token ~= '' and redis.call('GET', K.restoring) ~= A.token then return { 'fenced' } end
