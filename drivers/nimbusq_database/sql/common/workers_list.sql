-- Workers that were heard of lately.
-- Parameters: max_age in seconds. Returns: report, seen_at.
select report, seen_at from {p}workers where seen_at > {now} - :max_age order by id;
