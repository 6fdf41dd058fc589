-- Puts a paused job back into its line.
-- Parameters: id.
update {p}jobs set state = 'queued' where id = :id and state = 'paused';
