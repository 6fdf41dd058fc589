-- Takes free locks; one whose time is over is free.
-- Parameters, one set a lock: digest, token, ttl in seconds.
delete from {p}locks where expires_at <= {now};
insert into {p}locks (digest, token, expires_at) values (:digest, :token, {now} + :ttl)
on duplicate key update digest = digest;
