-- Who holds an overlap key.
--
-- uses     time
-- KEYS[1]  root
-- ARGV     1 testing · 2 digest
-- returns  refs

return redis.call('ZRANGE', root .. 'overlap:' .. ARGV[2], '(' .. string.format('%.0f', now), '+inf', 'BYSCORE')
