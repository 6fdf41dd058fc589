-- The columns of the jobs that `takes` has claimed, and their order.
j.id, j.queue, j.priority, j.seq, j.wire, j.attempts, j.releases, j.reclaims, j.fence, j.run_at, {now} as now
from gate cross join verdict left join candidates j on not verdict.judged
order by j.place, j.priority, j.run_at, j.seq
