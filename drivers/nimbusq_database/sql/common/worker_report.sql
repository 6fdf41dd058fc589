-- What a worker says of itself.
-- Parameters: id, report.
insert into {p}workers (id, report, seen_at) values (:id, :report, {now})
on conflict (id) do update set report = excluded.report, seen_at = excluded.seen_at;
