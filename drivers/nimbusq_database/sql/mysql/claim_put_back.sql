-- Puts jobs off that their overlap key (blocked = 1, counted as a release) or their rate (0) does not let start.
-- Parameters: rows of [id, delay in seconds, blocked].
update {p}jobs j
join json_table(:rows, '$[*]' columns (
  id varchar(128) path '$[0]', delay double path '$[1]', blocked int path '$[2]'
)) as gate on j.id = gate.id collate utf8mb4_bin
set j.run_at = {now} + gate.delay, j.releases = j.releases + gate.blocked, j.blocks = j.blocks + gate.blocked;
