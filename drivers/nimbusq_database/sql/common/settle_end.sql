-- The jobs leave, and their unique slots with them.
-- Parameters: ids.
delete from {p}jobs where id {in ids};
