-- One live job, locked.
-- Parameters: id. Returns: all columns, now.
select j.*, {now} as now from {p}jobs j where j.id = :id {for update};
