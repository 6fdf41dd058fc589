-- These members have ended.
-- Parameters: rows of [batch id, member id].
update {p}batch_members set ended = 1 where (batch_id, member_id) in (
  select json_extract(value, '$[0]'), json_extract(value, '$[1]') from json_each(:rows)
);
