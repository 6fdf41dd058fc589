-- The theoretical arrival times of rates, locked.
-- Parameters: digests. Returns: digest, tat, now.
select digest, tat, {now} as now from {p}rates where digest {in digests} order by digest {for update};
