-- Frees a lock of its holder.
-- Parameters: digest, token.
delete from {p}locks where digest = :digest and token = :token and expires_at > {now};
