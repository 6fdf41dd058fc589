-- Writes transitions down, in testing mode.
-- Parameters, one list a column.
insert into {p}audit (event, job_id, token, attempt, extra)
select event, job_id, token, attempt, extra
from unnest(:event::text[], :job_id::text[], :token::text[], :attempt::int[], :extra::text[])
  with ordinality as step (event, job_id, token, attempt, extra, place)
order by place;
