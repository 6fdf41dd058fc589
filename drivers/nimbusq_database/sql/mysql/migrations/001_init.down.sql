-- Removes everything that nimbusq stores under this prefix.

drop table if exists {p}audit;
drop table if exists {p}meta;
drop table if exists {p}totals;
drop table if exists {p}workers;
drop table if exists {p}schedules;
drop table if exists {p}history;
drop table if exists {p}results;
drop table if exists {p}failed;
drop table if exists {p}batch_members;
drop table if exists {p}batches;
drop table if exists {p}rates;
drop table if exists {p}locks;
drop table if exists {p}paused_queues;
drop table if exists {p}jobs;
