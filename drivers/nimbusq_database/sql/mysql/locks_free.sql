-- Frees the unique locks of jobs that have ended, unless another job holds them by now.
-- Parameters: rows of [digest, token].
delete l from {p}locks l
join json_table(:rows, '$[*]' columns (digest varchar(64) path '$[0]', token varchar(128) path '$[1]')) as freed
on l.digest = freed.digest collate utf8mb4_bin and l.token = freed.token collate utf8mb4_bin;
