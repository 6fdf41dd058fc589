-- Adds members to a batch.
-- Parameters: batch_id, ids.
insert into {p}batch_members (batch_id, member_id) select :batch_id, id from unnest(:ids::text[]) as id order by id
on conflict do nothing;
