"""The seam: what a driver supplies.

A driver is an `Adapter` (five verbs, a life cycle, a capability record) and the `Stores` that its backend can
back. Verbs are batched: one round trip carries many jobs. Core does everything else once, for all drivers:
retry policy, metrics, logging, hooks, chains and batches. A driver holds none of these.

The states of a job::

    push ──▶ delayed ──▶ ready ──▶ leased ──▶ done | failed | cancelled
                ▲          ▲         │
                └──────────┴─────────┘  retry, release, lost lease          (paused leaves by resume)

Every transition is ONE atomic step in the store and carries its guard:

=========  ===========================================  =======================================================
step       guard                                        effect, all or nothing
=========  ===========================================  =======================================================
push       id unknown; unique key free                  job written, unique key -> id
claim      ready, or delayed and due                    token written, attempt + 1, lease until server now + lease
reclaim    lease expired (part of every claim)          token cleared, back to ready; or ended, see `Ending`
extend     the job's token is the claim's               lease until max(old, server now + lease)
settle     the job's token is the claim's               terminal: the job leaves, its slot is freed, the batch
                                                        recorded, follow-ups pushed, records written;
                                                        retry or release: token cleared, due again after the delay
=========  ===========================================  =======================================================

Why this is right: only claim writes a token, only settle and expiry clear it, and a job has one token field, so
at every moment it has at most one holder, without any clock. `settle` succeeds only for the holder, so a claim
has at most one successful settlement, and after a terminal one the job has no token and is never ready again:
at most one terminal outcome. A job leaves the store only by a terminal settlement, and every other state has a
transition that any worker's next claim performs when it is due: nothing is lost and nothing waits for a leader.
Clocks decide only *when* a lease expires. The attempt is counted in the step that writes the token, so starts
stay within max_attempts (plus releases) whatever crashes.

All clocks are the store's own; callers send durations in seconds. Every mutating call may be executed twice
without harm (its reply may have been lost): push by the job's id, claim by `Want.token`, settle by the claim's
token. Third parties write drivers against these protocols, register them under the entry-point group
``nimbusq.drivers`` and prove them with `nimbusq.testing.suite`.
"""

from nimbusq.driver.adapter import Adapter, Depth, DriverSettings, Finding
from nimbusq.driver.batches import Added, BatchRecord, BatchState, BatchStore, BatchUpdate, NewBatch
from nimbusq.driver.capabilities import Capabilities, Need, lacking
from nimbusq.driver.claims import Claim, Claimed, Ending, Lane, Lost, Pushed, Renewal, Want
from nimbusq.driver.completion import to_its_end
from nimbusq.driver.deadlines import Deadlines
from nimbusq.driver.grouping import PushGroups
from nimbusq.driver.settlements import (
    Cancelled,
    Done,
    Failed,
    FailedRecord,
    HistoryRow,
    Outcome,
    PutBack,
    Retry,
    Settled,
    Settlement,
    SettleStatus,
)
from nimbusq.driver.stores import (
    Cancel,
    Ended,
    FailedStore,
    FailureGroup,
    History,
    JobLimiter,
    Jobs,
    JobState,
    JobView,
    Locker,
    Reserved,
    Results,
    Schedules,
    ScheduleState,
    Stores,
    WorkerReport,
    Workers,
)

__all__ = [
    "Adapter",
    "Added",
    "BatchRecord",
    "BatchState",
    "BatchStore",
    "BatchUpdate",
    "Cancel",
    "Cancelled",
    "Capabilities",
    "Claim",
    "Claimed",
    "Deadlines",
    "Depth",
    "Done",
    "DriverSettings",
    "Ended",
    "Ending",
    "Failed",
    "FailedRecord",
    "FailedStore",
    "FailureGroup",
    "Finding",
    "History",
    "HistoryRow",
    "JobLimiter",
    "JobState",
    "JobView",
    "Jobs",
    "Lane",
    "Locker",
    "Lost",
    "Need",
    "NewBatch",
    "Outcome",
    "PushGroups",
    "Pushed",
    "PutBack",
    "Renewal",
    "Reserved",
    "Results",
    "Retry",
    "ScheduleState",
    "Schedules",
    "SettleStatus",
    "Settled",
    "Settlement",
    "Stores",
    "Want",
    "WorkerReport",
    "Workers",
    "lacking",
    "to_its_end",
]
