-- Frees a lock whoever holds it.
-- Parameters: digest.
delete from {p}locks where digest = :digest and expires_at > {now};
