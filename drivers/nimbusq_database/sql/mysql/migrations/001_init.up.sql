-- The first schema. Times are epoch seconds; flags are 0 or 1. MySQL commits each statement that changes the
-- schema, so each one can be repeated.

-- One row a live job. It is queued (also while it is delayed: then run_at lies ahead), leased or paused, and
-- leaves by its terminal settlement. Indexes: jobs_due serves the claim (priority, then due time, then
-- arrival), jobs_check finds leases that may have ended (see check_at), jobs_slot is the active unique slot (only
-- live jobs have rows, and any number may have no key).
create table if not exists {p}jobs (
  seq bigint auto_increment primary key,       -- order of arrival
  id varchar(128) not null unique,
  queue varchar(64) not null,
  name varchar(255) not null,
  wire longblob not null,                      -- the envelope as it travels
  priority integer not null,
  state varchar(16) not null default 'queued',
  run_at double not null,                      -- not before
  created_at double not null,
  expires_at double,                           -- not after
  max_attempts integer not null,
  attempts integer not null default 0,
  releases integer not null default 0,
  blocks integer not null default 0,           -- releases by the overlap key
  reclaims integer not null default 0,         -- runs lost with their lease
  fence integer not null default 0,            -- rises with every claim
  token varchar(128),                          -- the claim that holds the job
  lease_until double,
  check_at double,                             -- never after lease_until; renewals leave it, to touch no index
  held_until double,                           -- how long the run counts for its overlap key
  ending varchar(16),                          -- why it must not run any more
  put_back_by varchar(128),                    -- the claim that last put it back, to know a repeated settlement
  cancel_asked integer not null default 0,
  error longtext not null default (''),        -- of its last failed run
  gated integer not null default 0,            -- has an overlap key or a rate
  unique_digest varchar(64),                   -- of a unique slot
  unique_lock varchar(64),                     -- digest of a unique lock in {p}locks
  overlap_digest varchar(64),
  overlap_expire double,
  batch_id varchar(128),
  member_id varchar(128),
  index {p}jobs_due (queue, state, priority, run_at),
  index {p}jobs_token (token),
  index {p}jobs_check (check_at),
  unique index {p}jobs_slot (unique_digest),
  index {p}jobs_overlap (overlap_digest)
) engine = InnoDB, character set = utf8mb4, collate = utf8mb4_bin;

create table if not exists {p}paused_queues (
  queue varchar(64) primary key
) engine = InnoDB, character set = utf8mb4, collate = utf8mb4_bin;

create table if not exists {p}locks (
  digest varchar(64) primary key,              -- SHA-256 of the key, whatever its length
  token varchar(128) not null,
  expires_at double not null,
  index {p}locks_expiry (expires_at)
) engine = InnoDB, character set = utf8mb4, collate = utf8mb4_bin;

create table if not exists {p}rates (
  digest varchar(64) primary key,              -- SHA-256 of the key
  tat double not null                          -- theoretical arrival time of the next job
) engine = InnoDB, character set = utf8mb4, collate = utf8mb4_bin;

create table if not exists {p}batches (
  seq bigint auto_increment primary key,
  id varchar(128) not null unique,
  name varchar(255) not null,
  then_wire longblob,
  catch_wire longblob,
  finally_wire longblob,
  cancel_on_failure integer not null default 0,
  meta longtext not null default ('{}'),
  mark integer not null default 0,             -- members added by the producer
  total integer not null default 0,
  pending integer not null default 0,
  failed integer not null default 0,
  errors longtext not null default ('[]'),
  sealed integer not null default 0,
  cancelled integer not null default 0,
  created_at double not null,
  updated_at double not null,
  finished_at double,
  index {p}batches_updated (updated_at)
) engine = InnoDB, character set = utf8mb4, collate = utf8mb4_bin;

create table if not exists {p}batch_members (
  batch_id varchar(128) not null,
  member_id varchar(128) not null,
  ended integer not null default 0,
  primary key (batch_id, member_id)
) engine = InnoDB, character set = utf8mb4, collate = utf8mb4_bin;

create table if not exists {p}failed (
  seq bigint auto_increment primary key,       -- order of failure
  id varchar(128) not null unique,
  queue varchar(64) not null,
  name varchar(255) not null,
  wire longblob not null,
  error longtext not null,
  kind varchar(255) not null,
  traceback longtext not null,
  fingerprint varchar(64) not null,
  attempts integer not null,
  max_attempts integer not null,
  failed_at double not null,
  index {p}failed_cause (fingerprint, seq)
) engine = InnoDB, character set = utf8mb4, collate = utf8mb4_bin;

create table if not exists {p}results (
  id varchar(128) primary key,
  result longblob not null,
  expires_at double not null,
  index {p}results_expiry (expires_at)
) engine = InnoDB, character set = utf8mb4, collate = utf8mb4_bin;

create table if not exists {p}history (
  seq bigint auto_increment primary key,       -- order of the ends
  id varchar(128) not null unique,
  queue varchar(64) not null,
  name varchar(255) not null,
  state varchar(16) not null,
  attempt integer not null,
  waited double not null,
  duration double not null,
  error longtext not null,
  worker varchar(255) not null,
  tags longtext not null,                      -- JSON array
  silenced integer not null,
  finished_at double not null
) engine = InnoDB, character set = utf8mb4, collate = utf8mb4_bin;

create table if not exists {p}schedules (
  name varchar(255) primary key,
  last_tick double,
  paused integer not null default 0,
  spec longtext not null                       -- JSON object
) engine = InnoDB, character set = utf8mb4, collate = utf8mb4_bin;

create table if not exists {p}workers (
  id varchar(128) primary key,
  report longtext not null,                    -- JSON object
  seen_at double not null
) engine = InnoDB, character set = utf8mb4, collate = utf8mb4_bin;

create table if not exists {p}totals (
  queue varchar(64) not null,
  counter varchar(64) not null,
  value integer not null,                      -- of the workers that are gone
  primary key (queue, counter)
) engine = InnoDB, character set = utf8mb4, collate = utf8mb4_bin;

create table if not exists {p}meta (
  name varchar(255) primary key,
  value double not null
) engine = InnoDB, character set = utf8mb4, collate = utf8mb4_bin;
insert into {p}meta (name, value) values ('skew', 0.0) on duplicate key update name = name;

create table if not exists {p}audit (
  seq bigint auto_increment primary key,
  event varchar(16) not null,
  job_id varchar(128) not null,
  token varchar(128) not null,
  attempt integer not null,
  extra longtext not null                      -- JSON object
) engine = InnoDB, character set = utf8mb4, collate = utf8mb4_bin;
