-- Frees the unique locks of jobs that have ended, unless another job holds them by now.
-- Parameters: rows of [digest, token].
delete from {p}locks using jsonb_array_elements(:rows::jsonb) as freed (value)
where digest = any (array(select value ->> 0 from jsonb_array_elements(:rows::jsonb)))
  and digest = value ->> 0 and token = value ->> 1;
