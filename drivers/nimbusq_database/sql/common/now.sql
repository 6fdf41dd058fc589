-- Returns: now.
select {now} as now;
