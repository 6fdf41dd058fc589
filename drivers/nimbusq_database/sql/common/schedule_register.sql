-- Describes a schedule; a new one starts now.
-- Parameters: name, spec.
insert into {p}schedules (name, last_tick, spec) values (:name, {now}, :spec)
on conflict (name) do update set spec = excluded.spec;
