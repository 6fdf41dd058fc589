-- Who holds these jobs, whether they are locked or not.
-- Parameters: ids. Returns: id, token.
select id, token from {p}jobs where id {in ids};
