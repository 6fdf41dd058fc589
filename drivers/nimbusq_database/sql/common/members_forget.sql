-- Drops the members of batches.
-- Parameters: ids of batches.
delete from {p}batch_members where batch_id {in ids};
