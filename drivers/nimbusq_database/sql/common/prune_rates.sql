-- Drops rates that nobody has used for a while.
-- Parameters: age in seconds.
delete from {p}rates where tat <= {now} - :age;
