-- How many runs hold these overlap keys now.
-- Parameters: digests. Returns: digest, held.
select overlap_digest as digest, count(*) as held
from {p}jobs
where overlap_digest {in digests} and state = 'leased' and held_until > {now}
group by overlap_digest;
