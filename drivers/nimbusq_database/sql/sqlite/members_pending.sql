-- Which of these members have not ended.
-- Parameters: rows of [batch id, member id]. Returns: batch_id, member_id.
select batch_id, member_id from {p}batch_members
where ended = 0 and (batch_id, member_id) in (
  select json_extract(value, '$[0]'), json_extract(value, '$[1]') from json_each(:rows)
);
