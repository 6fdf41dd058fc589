-- Insert a failed record, or replace the one of that job.
--
-- uses     time many records
-- KEYS[1]  root
-- ARGV     1 testing · 2 ref · 3 record (JSON, newline, wire)
-- returns  nothing

keep_failed(ARGV[2], ARGV[3], 0)
