-- Whether the migrations' table is there.
-- Parameters: name of the table. Returns: a row if it is there.
select 1 as found from information_schema.tables where table_schema = database() and table_name = :name;
