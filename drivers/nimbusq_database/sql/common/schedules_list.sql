-- All schedules by name.
-- Returns: all columns.
select * from {p}schedules order by name;
