-- Counters of the workers that are gone.
-- Returns: queue, counter, value.
select queue, counter, value from {p}totals;
