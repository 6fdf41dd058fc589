-- Which of these members have not ended.
-- Parameters: rows of [batch id, member id]. Returns: batch_id, member_id.
select m.batch_id, m.member_id
from {p}batch_members m
join json_table(:rows, '$[*]' columns (
  batch_id varchar(128) path '$[0]', member_id varchar(128) path '$[1]'
)) as wanted on m.batch_id = wanted.batch_id collate utf8mb4_bin
  and m.member_id = wanted.member_id collate utf8mb4_bin
where m.ended = 0
order by m.batch_id, m.member_id
for update;
