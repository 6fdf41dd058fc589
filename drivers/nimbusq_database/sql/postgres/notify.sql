-- Tells listening workers that these queues have news.
-- Parameters: channel, queues as JSON. Returns: one row.
select pg_notify(:channel, :queues);
