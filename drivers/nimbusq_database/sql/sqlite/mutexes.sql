-- Of these keys, those that no other claim is judging at this moment. The one writer of SQLite judges alone.
-- Parameters: keys. Returns: key.
select value as key from json_each(:keys);
