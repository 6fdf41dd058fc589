-- Which of these members have not ended, locked in the order of the rows.
-- Parameters: rows of [batch id, member id], sorted. Returns: batch_id, member_id.
select member.batch_id, member.member_id
from jsonb_array_elements(:rows::jsonb) as element (value)
cross join lateral (
  select batch_id, member_id from {p}batch_members
  where batch_id = value ->> 0 and member_id = value ->> 1 and ended = 0
  limit 1
  for update
) member;
