-- Parameters: id.
update {p}jobs set state = 'paused' where id = :id;
