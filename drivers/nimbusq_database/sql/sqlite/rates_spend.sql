-- Writes what was spent of rates.
-- Parameters: rows of [digest, tat].
update {p}rates set tat = spent.tat
from (select json_extract(value, '$[0]') as digest, json_extract(value, '$[1]') as tat from json_each(:rows)) as spent
where {p}rates.digest = spent.digest;
