-- Writes what was spent of rates.
-- Parameters: rows of [digest, tat].
update {p}rates r
join json_table(:rows, '$[*]' columns (digest varchar(64) path '$[0]', tat double path '$[1]')) as spent
on r.digest = spent.digest collate utf8mb4_bin
set r.tat = spent.tat;
