-- Drops locks whose time is over.
delete from {p}locks where expires_at <= {now};
