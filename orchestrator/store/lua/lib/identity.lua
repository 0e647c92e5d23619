-- Whether this is the store the caller knows. Left out of what builds a shard again (`identity: any`).

if known[1] ~= A.epoch then return { 'amnesia' } end
if known[2] ~= A.server then return { 'moved' } end
