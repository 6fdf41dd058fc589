-- Whether the migrations' table is there.
-- Parameters: name of the table. Returns: a row if it is there.
select 1 as found where to_regclass(:name) is not null;
