-- Parameters: name, spec. A new schedule starts now.
insert into {p}schedules (name, last_tick, spec) values (:name, {now}, :spec) on duplicate key update name = name;
update {p}schedules set spec = :spec where name = :name;
