-- Moves a schedule on to a later tick; no row changes for one that was fired, or while it is paused.
-- Parameters: name, tick.
update {p}schedules set last_tick = :tick
where name = :name and paused = 0 and (last_tick is null or last_tick < :tick);
