-- Which of these the batch has, or had.
-- Parameters: batch_id, ids. Returns: member_id.
select member.member_id
from unnest(:ids::text[]) as wanted (id)
cross join lateral (
  select member_id from {p}batch_members where batch_id = :batch_id::text and member_id = wanted.id limit 1
) member;
