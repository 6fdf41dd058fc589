-- Stops or lets go on the ticks of a schedule.
-- Parameters: name, paused. Letting it go on moves it to now: what it missed meanwhile is not caught up.
update {p}schedules
set last_tick = case when paused > :paused and last_tick < {now} then {now} else last_tick end, paused = :paused
where name = :name;
