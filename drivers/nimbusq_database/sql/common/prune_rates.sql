-- Parameters: age in seconds.
delete from {p}rates where tat <= {now} - :age;
