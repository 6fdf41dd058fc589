-- settle_ends and claim_plain in one step, for a worker that does both at the same moment: one round trip and one
-- commit instead of two. Neither sees what the other does: a job whose claim is settled is no candidate.
-- Parameters: those of both. Returns: the columns of both; the settlements' are the same in every row.
with {part ends},
{part takes}
select (gate.closed or verdict.judged)::int as judge, {part missed}, {part taken}
