-- Frees the unique locks of jobs that have ended, unless another job holds them by now.
-- Parameters: rows of [digest, token].
delete from {p}locks where (digest, token) in (
  select json_extract(value, '$[0]'), json_extract(value, '$[1]') from json_each(:rows)
);
