-- These members have ended.
-- Parameters: rows of [batch id, member id].
update {p}batch_members set ended = 1
from jsonb_array_elements(:rows::jsonb) as member (value)
where batch_id = value ->> 0 and member_id = value ->> 1;
