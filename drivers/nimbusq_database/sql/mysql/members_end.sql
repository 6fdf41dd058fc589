-- These members have ended.
-- Parameters: rows of [batch id, member id].
update {p}batch_members m
join json_table(:rows, '$[*]' columns (
  batch_id varchar(128) path '$[0]', member_id varchar(128) path '$[1]'
)) as ended on m.batch_id = ended.batch_id collate utf8mb4_bin and m.member_id = ended.member_id collate utf8mb4_bin
set m.ended = 1;
