-- These members have ended. They are locked already, so that they stay in their places.
-- Parameters: rows of [batch id, member id].
update {p}batch_members set ended = 1
where ctid = any (array(
  select member.place
  from jsonb_array_elements(:rows::jsonb) as element (value)
  cross join lateral (
    select ctid as place from {p}batch_members where batch_id = value ->> 0 and member_id = value ->> 1 limit 1
  ) member
));
