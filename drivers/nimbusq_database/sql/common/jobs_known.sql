-- Which of these jobs are live.
-- Parameters: ids. Returns: id.
select id from {p}jobs where id {in ids};
