-- Keeps a lock for longer.
-- Parameters: digest, token, ttl in seconds.
update {p}locks set expires_at = {now} + :ttl where digest = :digest and token = :token and expires_at > {now};
