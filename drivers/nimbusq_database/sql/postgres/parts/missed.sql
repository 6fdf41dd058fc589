-- Of the settlements of `ends`, those that could not be applied, and which of these had been before.
(select array_agg(id) from missed) as missed, (select array_agg(id) from missed where already) as already
