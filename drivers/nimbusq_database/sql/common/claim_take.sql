-- Gives these jobs to a claim.
-- Parameters: ids, token, lease in seconds.
update {p}jobs
set state = 'leased', token = :token, attempts = attempts + 1, fence = fence + 1,
  lease_until = {now} + :lease, check_at = {now} + :lease,
  held_until = {now} + {least}(:lease, coalesce(overlap_expire, :lease))
where id {in ids};
