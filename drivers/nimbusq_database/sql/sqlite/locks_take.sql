-- Takes free locks; one whose time is over is free, and its holder may take it again.
-- Parameters, one set a lock: digest, token, ttl in seconds.
insert into {p}locks (digest, token, expires_at) values (:digest, :token, {now} + :ttl)
on conflict (digest) do update set token = excluded.token, expires_at = excluded.expires_at
where {p}locks.expires_at <= {now} or {p}locks.token = excluded.token;
