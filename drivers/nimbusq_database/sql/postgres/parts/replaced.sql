-- How a history row takes the place of one of the same id: as the newest.
on conflict (id) do update
  set seq = excluded.seq, queue = excluded.queue, name = excluded.name, state = excluded.state,
    attempt = excluded.attempt, waited = excluded.waited, duration = excluded.duration, error = excluded.error,
    worker = excluded.worker, tags = excluded.tags, silenced = excluded.silenced,
    finished_at = excluded.finished_at
