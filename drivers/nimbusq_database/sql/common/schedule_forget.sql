-- Drops a schedule.
-- Parameters: name.
delete from {p}schedules where name = :name;
