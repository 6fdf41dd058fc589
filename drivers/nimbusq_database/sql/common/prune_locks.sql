delete from {p}locks where expires_at <= {now};
