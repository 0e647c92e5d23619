-- snapshot: the run as it is at one version, and these of its steps; for the ledger
-- keys: run
-- args: *ids
-- moves: none
-- reply snapshot: fields steps results errors
-- reply unknown:
if not load_run() then return { 'unknown' } end

local PAGE = 1000

local function chosen(key)
  local flat = {}
  for first = REST, #ARGV, PAGE do
    local ids = { unpack(ARGV, first, math.min(first + PAGE - 1, #ARGV)) }
    for i, text in ipairs(redis.call('HMGET', key, unpack(ids))) do
      if text then
        flat[#flat + 1] = ids[i]
        flat[#flat + 1] = text
      end
    end
  end
  return flat
end

local fields = {}
for name, value in pairs(run) do
  if name ~= 'policy' then
    fields[#fields + 1] = name
    fields[#fields + 1] = value
  end
end
return { 'snapshot', fields, chosen(K.steps), chosen(K.results), chosen(K.errors) }
