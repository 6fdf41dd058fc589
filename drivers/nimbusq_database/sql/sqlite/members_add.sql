-- Adds members to a batch.
-- Parameters: batch_id, ids.
insert into {p}batch_members (batch_id, member_id) select :batch_id, value from json_each(:ids) where true
on conflict do nothing;
