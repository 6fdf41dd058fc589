-- Settlements that only end their jobs and keep history, for claims that still hold them: by far the most.
-- Parameters: ids and tokens, claim by claim; waited and durations in seconds (null: no history is kept), states (null:
-- done), errors, tags and silenced (null: none) likewise, where a list may end early; worker. Queue, name and attempt
-- are the job's own.
-- Returns one row: missed, already (lists of ids, or null): not held; of these, put back by the same token before.
with {part ends}
select {part missed};
