-- Parameters, one list a column: name, spec. A new schedule starts now.
insert into {p}schedules (name, last_tick, spec)
select name, {now}, spec from unnest(:name::text[], :spec::text[]) as schedule (name, spec)
on conflict (name) do update set spec = excluded.spec;
