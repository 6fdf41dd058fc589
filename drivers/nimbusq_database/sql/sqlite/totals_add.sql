-- Adds to the counters of workers that are gone.
-- Parameters: rows of [queue, counter, value].
insert into {p}totals (queue, counter, value)
select json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]')
from json_each(:rows) where true
on conflict (queue, counter) do update set value = {p}totals.value + excluded.value;
