-- Parameters: id.
update {p}jobs set cancel_asked = 1 where id = :id;
