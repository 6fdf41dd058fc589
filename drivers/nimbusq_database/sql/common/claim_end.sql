-- Gives these jobs to a claim that must not run but end them; no attempt is counted.
-- Parameters: ids, token, lease in seconds, ending.
update {p}jobs
set state = 'leased', token = :token, fence = fence + 1, ending = :ending,
  lease_until = {now} + :lease, check_at = {now} + :lease, held_until = null
where id {in ids};
