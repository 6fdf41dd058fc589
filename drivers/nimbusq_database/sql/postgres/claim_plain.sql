-- A whole claim where nothing needs to be judged: no lease may have ended, the token is new, and no candidate
-- has a gate or an ending. Otherwise nothing is changed, and the claim goes its longer way.
-- Parameters: token, lease in seconds, limit; queues, limits, fronts, first_seqs and reaches, lane by
-- lane, and lapsed_after (see nimbusq_database/fronts.py).
-- Returns: judge (1: the longer way), and the columns of a plain claim; one row without an id where nothing was due.
with {part takes}
select (gate.closed or verdict.judged)::int as judge, {part taken}
