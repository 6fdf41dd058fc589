-- Retries, releases, jobs handed back: due again after their delay.
-- Parameters: rows of [id, delay in seconds, attempts given back, releases counted, error].
update {p}jobs
set state = 'queued', put_back_by = token, token = null, lease_until = null, check_at = null, held_until = null,
  run_at = {now} + back.delay, attempts = attempts - back.given_back, releases = releases + back.counted,
  error = coalesce(back.error, {p}jobs.error)
from (
  select
    json_extract(value, '$[0]') as id, json_extract(value, '$[1]') as delay,
    json_extract(value, '$[2]') as given_back, json_extract(value, '$[3]') as counted,
    json_extract(value, '$[4]') as error
  from json_each(:rows)
) as back
where {p}jobs.id = back.id;
