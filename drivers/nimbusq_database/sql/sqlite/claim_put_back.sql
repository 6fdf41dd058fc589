-- Puts jobs off that their overlap key (blocked = 1, counted as a release) or their rate (0) does not let start.
-- Parameters: rows of [id, delay in seconds, blocked].
update {p}jobs
set run_at = {now} + gate.delay, releases = releases + gate.blocked, blocks = blocks + gate.blocked
from (
  select
    json_extract(value, '$[0]') as id, json_extract(value, '$[1]') as delay,
    json_extract(value, '$[2]') as blocked
  from json_each(:rows)
) as gate
where {p}jobs.id = gate.id;
