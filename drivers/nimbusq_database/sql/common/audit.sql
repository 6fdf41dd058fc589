-- All transitions in their order.
-- Returns: event, job_id, token, attempt, extra.
select event, job_id, token, attempt, extra from {p}audit order by seq;
