-- A job is stored in up to two places.
--
-- jobs     hash: ref -> record, written by push and never changed. A record is `control "\n" wire`: the control is
--          a JSON object of what the store must know to move the job, or nothing for a plain job; the wire is the
--          envelope as its sender wrote it, but for the id (see wires.py). The control's fields:
--            max       allowed runs, where that is not 4       priority  1..10, where that is not 5
--            delay     seconds, read by push only              expires   seconds, read by push only
--            slot      digest of a unique key (mode slot)      batch     id
--            lock, ttl, id  digest, seconds and job id (mode lock)
--            overlap, limit, release_after, expire_after, max_releases   digest and options
--            rate, per_second, burst                           hashed key and options
--            queue     where the wire cannot tell it: of a job that was pushed as raw bytes
-- running  hash: ref -> state of a leased job (msgpack map)
-- waiting  hash: ref -> state of a job that waits and is more than fresh: delayed with a priority, run before ...
--          A fresh job that waits has no state: its place in its queue's set says all.
--
-- A state's fields, each absent where it has its default:
--   attempt, releases, blocks, reclaims, fence   counters
--   priority (5), expires (never)                set by push
--   due       when it was due, of the run under way
--   token     of the claim that holds it: only claim writes one; settle and the end of the lease clear it
--   settled   the token that put it back, to know a repeated settlement
--   queue, control                               of a leased job: what its end needs
--   ending    why it must not run any more        cancel    a cancel was asked for
--   error     of the last run
local jobs_key, running_key, waiting_key = root .. 'jobs', root .. 'running', root .. 'waiting'

local function unpack_state(packed)
  return packed and cmsgpack.unpack(packed) or { attempt = 0 }
end

-- The control of a record, as text ('' for a plain job).
local function control_text(record)
  if not record then
    return ''
  end
  return string.sub(record, 1, (string.find(record, '\n', 1, true) or 1) - 1)
end

local function parse_control(text)
  return text ~= '' and text ~= nil and cjson.decode(text) or nil
end

-- The header of a record's envelope as far as it can be read, else {}. Nothing that moves a job depends on it.
local function read_header(record)
  local line = string.match(record, '\n([^\n]*)') or ''
  local read, header = pcall(cjson.decode, (string.gsub(line, '^@', '{')))
  return read and type(header) == 'table' and header or {}
end
