-- Describes a schedule; a new one starts now.
-- Parameters: name, spec.
insert into {p}schedules (name, last_tick, spec) values (:name, {now}, :spec) on duplicate key update name = name;
update {p}schedules set spec = :spec where name = :name;
