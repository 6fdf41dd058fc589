-- Who holds these unique slots.
-- Parameters: digests. Returns: digest, id.
select unique_digest as digest, id from {p}jobs where unique_digest {in digests};
