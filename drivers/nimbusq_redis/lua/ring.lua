-- Ring one bell: the alarm of a wait, at a time that the waiting worker has chosen, or when it is told to leave.
--
-- uses     time bell
-- flags    allow-oom
-- KEYS[1]  root
-- ARGV     1 testing · 2 alarm
-- returns  nothing

ring(ARGV[2])
