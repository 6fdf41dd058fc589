-- The running jobs that hold an overlap key.
-- Parameters: digest. Returns: id.
select id from {p}jobs where overlap_digest = :digest and state = 'leased' and held_until > {now};
