-- Adds members to a batch.
-- Parameters: batch_id, ids.
insert into {p}batch_members (batch_id, member_id)
select :batch_id, wanted.id from json_table(:ids_json, '$[*]' columns (id varchar(128) path '$')) as wanted
on duplicate key update {p}batch_members.batch_id = {p}batch_members.batch_id;
