-- The store's clock.
--
-- uses     time
-- KEYS[1]  root
-- ARGV     1 testing
-- returns  now

return now
