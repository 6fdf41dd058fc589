-- Renews leases in one statement. A row that somebody else has locked is skipped, and is still the claim's if its
-- token says so. Tokens are compared as in parts/ends.sql.
-- Parameters: ids and tokens, claim by claim; lease in seconds. Returns: id, held, renewed, cancel_asked.
with asked as materialized (
  select * from unnest(:ids::text[], :tokens::text[]) with ordinality as claim (id, token, place)
),
mine as materialized (
  select j.id from {p}jobs j join asked on asked.id = j.id and (j.token = asked.token) is true
  where j.id = any (:ids::text[])
  order by j.id
  for update of j skip locked
),
renewed as (
  update {p}jobs
  set lease_until = greatest(lease_until, {now} + :lease),
    held_until = case when overlap_digest is null then held_until
      else {now} + least(:lease, coalesce(overlap_expire, :lease)) end
  where id = any (array(select id from mine))
)
select
  asked.id, (j.token is not null and j.token = asked.token)::int as held,
  (asked.id in (select id from mine))::int as renewed, coalesce(j.cancel_asked, 0) as cancel_asked
from asked left join lateral (select token, cancel_asked from {p}jobs where id = asked.id limit 1) j on true
order by asked.place;
