delete from {p}results where expires_at <= {now};
