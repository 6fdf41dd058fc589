-- Renews leases; never shortens one.
-- Parameters: ids, lease in seconds.
update {p}jobs
set lease_until = {greatest}(lease_until, {now} + :lease),
  held_until = {now} + {least}(:lease, coalesce(overlap_expire, :lease))
where id {in ids};
