-- The server's clock.
-- Returns: now.
select {now} as now;
