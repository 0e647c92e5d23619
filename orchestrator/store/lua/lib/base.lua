-- The server's clock in milliseconds, unless a test brings its own; and what the shard says it belongs to.

local function server_now()
  if A.now_ms ~= '' then return tonumber(A.now_ms) end
  local t = redis.call('TIME')
  return tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
end

local NOW = server_now()
local known = redis.call('MGET', K.epoch, K.server)
