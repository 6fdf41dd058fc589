-- Retries, releases, jobs handed back: due again after their delay.
-- Parameters: rows of [id, delay in seconds, attempts given back, releases counted, error].
update {p}jobs
set state = 'queued', put_back_by = token, token = null, lease_until = null, check_at = null, held_until = null,
  run_at = {now} + back.delay, attempts = attempts - back.given_back, releases = releases + back.counted,
  error = coalesce(back.error, {p}jobs.error)
from (
  select
    value ->> 0 as id, (value ->> 1)::float8 as delay, (value ->> 2)::int as given_back,
    (value ->> 3)::int as counted, value ->> 4 as error
  from jsonb_array_elements(:rows::jsonb)
) as back
where {p}jobs.id = any (array(select value ->> 0 from jsonb_array_elements(:rows::jsonb)))
  and {p}jobs.id = back.id;
