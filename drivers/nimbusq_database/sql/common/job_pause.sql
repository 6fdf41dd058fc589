-- Takes a queued job out of its line.
-- Parameters: id.
update {p}jobs set state = 'paused' where id = :id;
