-- Parameters: name, paused.
update {p}schedules set paused = :paused where name = :name;
