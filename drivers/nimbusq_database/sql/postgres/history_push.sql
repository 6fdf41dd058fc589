-- Stores what ended; a row of the same id is replaced and becomes the newest.
-- Parameters: rows of [id, queue, name, state, attempt, waited, duration, error, worker, tags, silenced].
insert into {p}history (
  id, queue, name, state, attempt, waited, duration, error, worker, tags, silenced, finished_at
)
select
  value ->> 0, value ->> 1, value ->> 2, value ->> 3, (value ->> 4)::int, (value ->> 5)::float8,
  (value ->> 6)::float8, value ->> 7, value ->> 8, value ->> 9, (value ->> 10)::int, {now}
from jsonb_array_elements(:rows::jsonb) with ordinality as row (value, place)
order by place
{part replaced};
