-- Failures of one cause, the greatest groups first, told by their latest record.
-- Parameters: limit. Returns: fingerprint, name, kind, error, count, first_at, last_at.
select f.fingerprint, f.name, f.kind, f.error, g.count, g.first_at, g.last_at
from (
  select fingerprint, max(seq) as seq, count(*) as count, min(failed_at) as first_at, max(failed_at) as last_at
  from {p}failed group by fingerprint order by count(*) desc, max(seq) desc limit :limit
) as g
join {p}failed f on f.seq = g.seq
order by g.count desc, f.seq desc;
