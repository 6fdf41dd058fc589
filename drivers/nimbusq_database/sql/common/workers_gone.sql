-- Workers that left (id) or that nobody has heard of for so long (null).
-- Parameters: id, max_age in seconds. Returns: id, report.
select id, report from {p}workers where id = coalesce(:id, id) and (id = :id or seen_at <= {now} - :max_age)
order by id {for update};
