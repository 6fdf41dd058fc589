-- What a claim must see to before it takes jobs: it may have been asked before, leases may have ended, queues may
-- be paused. One look instead of three.
-- Parameters: token. Returns: known, lapsed, paused (each 0 or 1).
select
  case when exists (select 1 from {p}jobs where check_at is not null and token = :token) then 1 else 0 end as known,
  case when (select min(check_at) from {p}jobs where check_at is not null) <= {now} then 1 else 0 end as lapsed,
  case when exists (select 1 from {p}paused_queues) then 1 else 0 end as paused;
