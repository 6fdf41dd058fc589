-- Puts jobs off that their overlap key (blocked = 1, counted as a release) or their rate (0) does not let start.
-- Parameters: rows of [id, delay in seconds, blocked].
update {p}jobs
set run_at = {now} + gate.delay, releases = releases + gate.blocked, blocks = blocks + gate.blocked
from (
  select value ->> 0 as id, (value ->> 1)::float8 as delay, (value ->> 2)::int as blocked
  from jsonb_array_elements(:rows::jsonb)
) as gate
where {p}jobs.id = any (array(select value ->> 0 from jsonb_array_elements(:rows::jsonb)))
  and {p}jobs.id = gate.id;
