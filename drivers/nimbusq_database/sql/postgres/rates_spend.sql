-- Writes what was spent of rates.
-- Parameters: rows of [digest, tat].
update {p}rates set tat = (value ->> 1)::float8
from jsonb_array_elements(:rows::jsonb) as spent (value)
where digest = any (array(select value ->> 0 from jsonb_array_elements(:rows::jsonb))) and digest = value ->> 0;
