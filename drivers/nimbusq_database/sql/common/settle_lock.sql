-- The jobs to settle. A job that has an ending was not counted an attempt for its claim.
-- Parameters: ids. Returns: id, token, queue, ending, attempts, unique_lock, put_back_by.
select id, token, queue, ending, attempts, unique_lock, put_back_by
from {p}jobs where id {in ids} order by id {for update};
