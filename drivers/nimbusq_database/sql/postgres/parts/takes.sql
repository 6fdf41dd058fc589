-- The claim of `claim_plain`: what closes its gate, its candidates, whether one of them must be judged, and its update.
-- Entries of jobs that have left are read until they are vacuumed, and most of them lie at the front of an index: the
-- gate looks only at leases that ended after `lapsed_after`, and a lane, down to the priority `reach`, for jobs no
-- earlier than its front.
gate as materialized (
  select
    exists (select from {p}jobs where token = :token)
    or (
      select check_at from {p}jobs where check_at > :lapsed_after and check_at <= {now} order by check_at limit 1
    ) is not null as closed
),
lanes as materialized (
  select lane.*
  from unnest(:queues::text[], :limits::int[], :fronts::float8[], :first_seqs::bigint[], :reaches::int[])
    with ordinality as lane (queue, room, front, first_seq, reach, place)
  where not (select closed from gate)
    and lane.queue <> all (array(select queue from {p}paused_queues))
  order by lane.place
),
candidates as materialized (
  select j.*, lane.place
  from lanes lane
  cross join lateral (
    select j.*
    from generate_series(1, 10) as p (priority)
    cross join lateral (
      select
        j.id, j.queue, j.wire, j.attempts, j.releases, j.reclaims, j.fence, j.run_at, j.seq, j.priority,
        j.gated = 1 or j.ending is not null or j.cancel_asked = 1 or coalesce(j.expires_at <= {now}, false)
        or (j.batch_id is not null and exists (
          select from {p}batches b where b.id = j.batch_id and b.cancelled = 1
        )) as judged
      from {p}jobs j
      where j.queue = lane.queue and j.priority = p.priority and j.state = 'queued' and j.run_at <= {now}
        and (j.run_at, j.seq) >= (
          case when p.priority <= lane.reach then lane.front else 0 end,
          case when p.priority <= lane.reach then lane.first_seq else 0 end
        )
      order by j.run_at, j.seq
      limit lane.room
      for update of j skip locked
    ) j
    limit lane.room
  ) j
  limit :limit
),
verdict as materialized (
  select coalesce(bool_or(judged), false) as judged from candidates
),
taken as (
  update {p}jobs
  set state = 'leased', token = :token, attempts = attempts + 1, fence = fence + 1,
    lease_until = {now} + :lease, check_at = {now} + :lease
  where id = any (array(select id from candidates)) and not (select judged from verdict)
)
