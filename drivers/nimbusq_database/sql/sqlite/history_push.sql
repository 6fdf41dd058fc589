-- Stores what ended; a row of the same id is replaced and becomes the newest. One step for all rows: each step
-- hands the interpreter's lock to and fro.
-- Parameters: rows of [id, queue, name, state, attempt, waited, duration, error, worker, tags, silenced].
insert or replace into {p}history (
  id, queue, name, state, attempt, waited, duration, error, worker, tags, silenced, finished_at
)
select
  json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'), json_extract(value, '$[3]'),
  json_extract(value, '$[4]'), json_extract(value, '$[5]'), json_extract(value, '$[6]'), json_extract(value, '$[7]'),
  json_extract(value, '$[8]'), json_extract(value, '$[9]'), json_extract(value, '$[10]'), {now}
from json_each(:rows);
