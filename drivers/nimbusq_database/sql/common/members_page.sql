-- Pending members by their ids.
-- Parameters: batch_id, after, limit. Returns: member_id.
select member_id from {p}batch_members
where batch_id = :batch_id and ended = 0 and member_id > :after order by member_id limit :limit;
