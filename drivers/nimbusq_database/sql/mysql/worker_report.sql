-- What a worker says of itself.
-- Parameters: id, report.
replace into {p}workers (id, report, seen_at) values (:id, :report, {now});
