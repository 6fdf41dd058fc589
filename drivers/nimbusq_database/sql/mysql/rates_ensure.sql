-- Makes sure that these rates have a row to lock.
-- Parameters: digests.
insert into {p}rates (digest, tat)
select wanted.digest, 0 from json_table(:digests_json, '$[*]' columns (digest varchar(64) path '$')) as wanted
on duplicate key update {p}rates.digest = {p}rates.digest;
