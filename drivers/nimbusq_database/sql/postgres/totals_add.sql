-- Adds to the counters of workers that are gone.
-- Parameters: rows of [queue, counter, value].
insert into {p}totals (queue, counter, value)
select value ->> 0, value ->> 1, (value ->> 2)::bigint from jsonb_array_elements(:rows::jsonb)
on conflict (queue, counter) do update set value = {p}totals.value + excluded.value;
