-- Parameters: id.
update {p}jobs set state = 'queued' where id = :id and state = 'paused';
