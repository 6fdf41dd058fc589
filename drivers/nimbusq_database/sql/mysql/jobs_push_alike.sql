-- Stores jobs that differ in their ids and envelopes only, and have no key, gate or batch; one whose id is known is
-- left out.
-- Parameters, one set a job: id, wire; for all: queue, name, priority, delay, expires_in, max_attempts.
insert into {p}jobs (id, wire, queue, name, priority, run_at, created_at, expires_at, max_attempts)
values (:id, unhex(:wire), :queue, :name, :priority, {now} + :delay, {now}, {now} + :expires_in, :max_attempts)
on duplicate key update id = id;
