-- The jobs to renew, without those that somebody else has locked.
-- Parameters: ids. Returns: id, token, cancel_asked.
select id, token, cancel_asked from {p}jobs where id {in ids} order by id {skip locked};
