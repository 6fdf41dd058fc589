-- Which of these the batch has, or had.
-- Parameters: batch_id, ids. Returns: member_id.
select member_id from {p}batch_members where batch_id = :batch_id and member_id {in ids};
