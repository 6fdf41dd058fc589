-- Parameters, one list a column: id, report.
insert into {p}workers (id, report, seen_at)
select id, report, {now} from unnest(:id::text[], :report::text[]) as worker (id, report)
on conflict (id) do update set report = excluded.report, seen_at = excluded.seen_at;
