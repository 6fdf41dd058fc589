-- Stores results; one of the same id is replaced.
-- Parameters, one list a column: id, result, ttl in seconds.
insert into {p}results (id, result, expires_at)
select id, result, {now} + ttl from unnest(:id::text[], :result::bytea[], :ttl::float8[]) as kept (id, result, ttl)
order by id
on conflict (id) do update set result = excluded.result, expires_at = excluded.expires_at;
