-- Writes transitions down, in testing mode.
-- Parameters, one set an event: its columns.
insert into {p}audit (event, job_id, token, attempt, extra) values (:event, :job_id, :token, :attempt, :extra);
