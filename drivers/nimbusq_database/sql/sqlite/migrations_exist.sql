-- Whether the migrations' table is there.
-- Parameters: name of the table. Returns: a row if it is there.
select name from sqlite_master where type = 'table' and name = :name;
