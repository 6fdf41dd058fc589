-- Adds to the counters of workers that are gone.
-- Parameters: rows of [queue, counter, value].
insert into {p}totals (queue, counter, value)
select t.queue, t.counter, t.added
from json_table(:rows, '$[*]' columns (
  queue varchar(64) path '$[0]', counter varchar(64) path '$[1]', added bigint path '$[2]'
)) as t
on duplicate key update value = value + t.added;
