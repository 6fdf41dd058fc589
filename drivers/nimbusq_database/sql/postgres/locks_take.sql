-- Takes free locks; one whose time is over is free, and its holder may take it again.
-- Parameters, one list a column: digest, token, ttl in seconds.
insert into {p}locks (digest, token, expires_at)
select digest, token, {now} + ttl
from unnest(:digest::text[], :token::text[], :ttl::float8[]) as wanted (digest, token, ttl)
order by digest
on conflict (digest) do update set token = excluded.token, expires_at = excluded.expires_at
where {p}locks.expires_at <= {now} or {p}locks.token = excluded.token;
