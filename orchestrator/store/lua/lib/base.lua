-- The server's clock in milliseconds, unless a test brings its own; and whether this is the store the caller knows.

local function server_now()
  if A.now_ms ~= '' then return tonumber(A.now_ms) end
  local t = redis.call('TIME')
  return tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
end

local NOW = server_now()
local known = redis.call('MGET', K.epoch, K.server)
if known[1] ~= A.epoch then return { 'amnesia' } end
if known[2] ~= A.server then return { 'moved' } end
