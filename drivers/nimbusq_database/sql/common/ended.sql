-- How a job ended, or that it lives.
-- Parameters: id. Returns: live, result, failed_error, state, error.
select
  (select 1 from {p}jobs where id = :id) as live,
  (select result from {p}results where id = :id and expires_at > {now}) as result,
  (select error from {p}failed where id = :id) as failed_error,
  (select state from {p}history where id = :id) as state,
  (select error from {p}history where id = :id) as error;
