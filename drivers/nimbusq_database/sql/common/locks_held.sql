-- Who holds these locks now.
-- Parameters: digests. Returns: digest, token.
select digest, token from {p}locks where digest {in digests} and expires_at > {now};
