-- Of these keys, those that no other claim is judging at this moment: they are this transaction's until its end.
-- Parameters: keys. Returns: key.
select key from unnest(:keys::text[]) as key where pg_try_advisory_xact_lock(hashtextextended('{p}' || key, 0));
