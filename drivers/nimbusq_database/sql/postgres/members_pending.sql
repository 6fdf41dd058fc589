-- Which of these members have not ended.
-- Parameters: rows of [batch id, member id]. Returns: batch_id, member_id.
select batch_id, member_id from {p}batch_members
where ended = 0 and (batch_id, member_id) in (
  select value ->> 0, value ->> 1 from jsonb_array_elements(:rows::jsonb)
)
order by batch_id, member_id
for update;
