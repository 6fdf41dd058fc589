-- The first schema. Times are epoch seconds; flags are 0 or 1.

-- One row a live job. It is queued (also while it is delayed: then run_at lies ahead), leased or paused, and
-- leaves by its terminal settlement. Indexes: jobs_due serves the claim (priority, then due time, then
-- arrival), jobs_check finds leases that may have ended (see check_at) and, by a scan of the few leased jobs,
-- the claims of a token, jobs_slot is the active unique slot.
create table {p}jobs (
  seq integer primary key,                 -- order of arrival
  id text not null unique,
  queue text not null,
  name text not null,
  wire blob not null,                      -- the envelope as it travels
  priority integer not null,
  state text not null default 'queued',
  run_at real not null,                    -- not before
  created_at real not null,
  expires_at real,                         -- not after
  max_attempts integer not null,
  attempts integer not null default 0,
  releases integer not null default 0,
  blocks integer not null default 0,       -- releases by the overlap key
  reclaims integer not null default 0,     -- runs lost with their lease
  fence integer not null default 0,        -- rises with every claim
  token text,                              -- the claim that holds the job
  lease_until real,
  check_at real,                           -- never after lease_until; renewals leave it, to touch no index
  held_until real,                         -- how long the run counts for its overlap key
  ending text,                             -- why it must not run any more
  put_back_by text,                        -- the claim that last put it back, to know a repeated settlement
  cancel_asked integer not null default 0,
  error text not null default '',          -- of its last failed run
  gated integer not null default 0,        -- has an overlap key or a rate
  unique_digest text,                      -- of a unique slot
  unique_lock text,                        -- digest of a unique lock in {p}locks
  overlap_digest text,
  overlap_expire real,
  batch_id text,
  member_id text
);
create index {p}jobs_due on {p}jobs (queue, priority, run_at) where state = 'queued';
create index {p}jobs_check on {p}jobs (check_at, token) where check_at is not null;
create unique index {p}jobs_slot on {p}jobs (unique_digest) where unique_digest is not null;
create index {p}jobs_overlap on {p}jobs (overlap_digest) where overlap_digest is not null;

create table {p}paused_queues (
  queue text primary key
) without rowid;

create table {p}locks (
  digest text primary key,                 -- SHA-256 of the key, whatever its length
  token text not null,
  expires_at real not null
) without rowid;
create index {p}locks_expiry on {p}locks (expires_at);

create table {p}rates (
  digest text primary key,                 -- SHA-256 of the key
  tat real not null                        -- theoretical arrival time of the next job
) without rowid;

create table {p}batches (
  seq integer primary key,
  id text not null unique,
  name text not null,
  then_wire blob,
  catch_wire blob,
  finally_wire blob,
  cancel_on_failure integer not null default 0,
  meta text not null default '{}',
  mark integer not null default 0,         -- members added by the producer
  total integer not null default 0,
  pending integer not null default 0,
  failed integer not null default 0,
  errors text not null default '[]',
  sealed integer not null default 0,
  cancelled integer not null default 0,
  created_at real not null,
  updated_at real not null,
  finished_at real
);
create index {p}batches_updated on {p}batches (updated_at);

create table {p}batch_members (
  batch_id text not null,
  member_id text not null,
  ended integer not null default 0,
  primary key (batch_id, member_id)
) without rowid;

create table {p}failed (
  seq integer primary key,                 -- order of failure
  id text not null unique,
  queue text not null,
  name text not null,
  wire blob not null,
  error text not null,
  kind text not null,
  traceback text not null,
  fingerprint text not null,
  attempts integer not null,
  max_attempts integer not null,
  failed_at real not null
);
create index {p}failed_cause on {p}failed (fingerprint, seq);

create table {p}results (
  id text primary key,
  result blob not null,
  expires_at real not null
);
create index {p}results_expiry on {p}results (expires_at);

create table {p}history (
  seq integer primary key,                 -- order of the ends
  id text not null unique,
  queue text not null,
  name text not null,
  state text not null,
  attempt integer not null,
  waited real not null,
  duration real not null,
  error text not null,
  worker text not null,
  tags text not null,                      -- JSON array
  silenced integer not null,
  finished_at real not null
);

create table {p}schedules (
  name text primary key,
  last_tick real,
  paused integer not null default 0,
  spec text not null                       -- JSON object
);

create table {p}workers (
  id text primary key,
  report text not null,                    -- JSON object
  seen_at real not null
);

create table {p}totals (
  queue text not null,
  counter text not null,
  value integer not null,                  -- of the workers that are gone
  primary key (queue, counter)
) without rowid;

create table {p}meta (
  name text primary key,
  value real not null
) without rowid;
insert into {p}meta (name, value) values ('skew', 0.0);

create table {p}audit (
  seq integer primary key,
  event text not null,
  job_id text not null,
  token text not null,
  attempt integer not null,
  extra text not null                      -- JSON object
);
