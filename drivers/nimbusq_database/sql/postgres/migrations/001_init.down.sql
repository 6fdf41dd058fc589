-- Removes everything that nimbusq stores under this prefix.

drop table {p}audit;
drop table {p}meta;
drop table {p}totals;
drop table {p}workers;
drop table {p}schedules;
drop table {p}history;
drop table {p}results;
drop table {p}failed;
drop table {p}batch_members;
drop table {p}batches;
drop table {p}rates;
drop table {p}locks;
drop table {p}paused_queues;
drop table {p}jobs;
