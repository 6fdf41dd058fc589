-- Makes sure that these rates have a row to lock.
-- Parameters: digests.
insert into {p}rates (digest, tat) select value, 0 from json_each(:digests) where true on conflict do nothing;
