-- Parameters: name, spec. A new schedule starts now.
insert into {p}schedules (name, last_tick, spec) values (:name, {now}, :spec)
on conflict (name) do update set spec = excluded.spec;
