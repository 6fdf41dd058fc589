-- Makes sure that these rates have a row to lock.
-- Parameters: digests.
insert into {p}rates (digest, tat) select digest, 0 from unnest(:digests::text[]) as digest order by digest
on conflict do nothing;
