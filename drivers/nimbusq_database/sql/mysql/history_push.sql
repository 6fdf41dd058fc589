-- Stores what ended; a row of the same id is replaced and becomes the newest.
-- Parameters: rows of [id, queue, name, state, attempt, waited, duration, error, worker, tags, silenced].
replace into {p}history (
  id, queue, name, state, attempt, waited, duration, error, worker, tags, silenced, finished_at
)
select
  h.id, h.queue, h.name, h.state, h.attempt, h.waited, h.duration, h.error, h.worker, h.tags, h.silenced, {now}
from json_table(:rows, '$[*]' columns (
  id varchar(128) path '$[0]', queue varchar(64) path '$[1]', name varchar(255) path '$[2]',
  state varchar(16) path '$[3]', attempt int path '$[4]', waited double path '$[5]', duration double path '$[6]',
  error longtext path '$[7]', worker varchar(255) path '$[8]', tags longtext path '$[9]', silenced int path '$[10]'
)) as h;
