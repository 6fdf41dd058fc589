-- Moves the test's clock.
-- Parameters: seconds.
update {p}meta set value = value + :seconds where name = 'skew';
