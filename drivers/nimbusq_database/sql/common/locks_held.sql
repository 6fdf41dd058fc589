-- Who holds these locks now.
-- By their digests a few are found, by their times all that live: the latter is written so that no index serves it.
-- Parameters: digests. Returns: digest, token.
select digest, token from {p}locks where digest {in digests} and expires_at - {now} > 0;
