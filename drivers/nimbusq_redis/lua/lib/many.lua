-- One command for many members. Lua's unpack is limited, so that long lists go in pieces; their length is even
-- because HSET and ZADD take pairs.
local PIECE = 1000

local function call_many(command, key, values)
  for first = 1, #values, PIECE do
    redis.call(command, key, unpack(values, first, math.min(first + PIECE - 1, #values)))
  end
end

-- The values of all fields of a hash (false where there is none), in order.
local function get_many(key, fields)
  if #fields <= PIECE then
    return #fields > 0 and redis.call('HMGET', key, unpack(fields)) or {}
  end
  local values = {}
  for first = 1, #fields, PIECE do
    local piece = redis.call('HMGET', key, unpack(fields, first, math.min(first + PIECE - 1, #fields)))
    for i = 1, #piece do
      values[first + i - 1] = piece[i]
    end
  end
  return values
end

-- Lists that are gathered under a key, e.g. the members to add to each queue's set.
local function gather(lists, key, first, second)
  local list = lists[key]
  if not list then
    list = {}
    lists[key] = list
  end
  list[#list + 1] = first
  list[#list + 1] = second
end
