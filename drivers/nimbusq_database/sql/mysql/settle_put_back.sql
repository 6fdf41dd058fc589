-- Retries, releases, jobs handed back: due again after their delay. (MySQL sets columns from left to right.)
-- Parameters: rows of [id, delay in seconds, attempts given back, releases counted, error].
update {p}jobs j
join json_table(:rows, '$[*]' columns (
  id varchar(128) path '$[0]', delay double path '$[1]', given_back int path '$[2]', counted int path '$[3]',
  error longtext path '$[4]'
)) as back on j.id = back.id collate utf8mb4_bin
set j.state = 'queued', j.put_back_by = j.token, j.token = null, j.lease_until = null, j.check_at = null,
  j.held_until = null, j.run_at = {now} + back.delay, j.attempts = j.attempts - back.given_back,
  j.releases = j.releases + back.counted, j.error = coalesce(back.error, j.error);
