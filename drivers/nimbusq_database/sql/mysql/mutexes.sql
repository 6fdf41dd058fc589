-- Of these keys, those that no other claim is judging at this moment. The locks are the session's: the dialect
-- lets go of them after the transaction's end.
-- Parameters: keys. Returns: key.
select wanted.k as `key`
from json_table(:keys_json, '$[*]' columns (k varchar(64) path '$')) as wanted
where get_lock(concat('nq_', md5(concat('{p}', wanted.k))), 0) = 1;
