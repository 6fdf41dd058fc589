-- Keeps the newest rows.
-- Parameters: keep (a number of rows), age in seconds.
delete from {p}history
where seq <= (select newest from (select max(seq) as newest from {p}history) as h) - :keep
  or finished_at <= {now} - :age;
