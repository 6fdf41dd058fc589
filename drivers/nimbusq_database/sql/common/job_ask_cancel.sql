-- Asks the worker of a running job to cancel it.
-- Parameters: id.
update {p}jobs set cancel_asked = 1 where id = :id;
