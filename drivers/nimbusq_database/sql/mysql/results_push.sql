-- Stores results; one of the same id is replaced.
-- Parameters, one set a result: id, result, ttl in seconds.
replace into {p}results (id, result, expires_at) values (:id, unhex(:result), {now} + :ttl);
