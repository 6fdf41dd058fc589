-- Drops results that have outlived their time.
delete from {p}results where expires_at <= {now};
