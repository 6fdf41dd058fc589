-- One schedule.
-- Parameters: name. Returns: all columns.
select * from {p}schedules where name = :name;
