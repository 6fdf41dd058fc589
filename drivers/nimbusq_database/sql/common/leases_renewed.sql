-- These leases have been renewed: look at them again when they end next.
-- Parameters: ids.
update {p}jobs set check_at = lease_until where id {in ids};
