"""What a chaos run must not show: the store's audit, the ledger and the sender's list, held against each other."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from nimbusq.driver import BatchState
from nimbusq.ids import derived_id
from nimbusq.testing.audit import ENDS, AuditEvent, check
from tests.faults.ledger import Ledger, Line
from tests.faults.producer import Sent

HOLDS = frozenset({"claim", "ending"})
LEAVES = frozenset({"lost", "retry", "release", *ENDS})


@dataclass
class Evidence:
    """All that is known when a run is over. left: ids of jobs that the store still has.

    recorded: how jobs ended by the history of a store beside another driver. Of those that the store itself has not
    kept, at least one run and one record are asked: their driver keeps no audit, and may run them twice.
    """

    events: Sequence[AuditEvent]
    ledger: Ledger
    sent: Sent
    batches: Mapping[str, BatchState | None]
    left: Sequence[str]
    recorded: Mapping[str, str] = field(default_factory=dict)
    ends: dict[str, str] = field(init=False)
    carried: Set[str] = field(init=False)
    claims: Counter[str] = field(init=False)
    starts: dict[str, list[Line]] = field(init=False)
    effects: set[str] = field(init=False)

    def __post_init__(self) -> None:
        audited = {event.job_id: event.event for event in self.events if event.event in ENDS}
        self.ends = {**self.recorded, **audited}
        self.carried = self.recorded.keys() - {event.job_id for event in self.events}
        self.claims = Counter(event.job_id for event in self.events if event.event == "claim")
        self.starts = self.ledger.by("id", self.ledger.lines("start"))
        self.effects = {line["id"] for line in self.ledger.lines("end")}

    @property
    def expired(self) -> int:
        """Leases that ended before their runs did; of carried jobs the runs of whose end no worker was told."""
        ended = Counter(line["id"] for line in self.ledger.lines("processed", "again"))
        cut = sum(max(0, len(self.starts.get(job_id, ())) - ended[job_id]) for job_id in self.carried)
        return cut + sum(event.event == "lost" for event in self.events)


def violations(evidence: Evidence) -> list[str]:
    """Everything that is wrong; none is the only good answer."""
    return [
        *check(evidence.events),  # S2 to S10, from the audit alone
        *_lost(evidence),
        *_effects(evidence),
        *_outcomes(evidence),
        *_overlaps(evidence),
        *_batches(evidence),
        *_chains(evidence),
    ]


def _lost(evidence: Evidence) -> Iterable[str]:
    """S1: what was accepted has ended, and nothing is left in the store."""
    for n, job_id in evidence.sent.ok.items():
        if job_id not in evidence.ends:
            yield f"S1: job {n} ({job_id}) was accepted and has not ended"
    for job_id in {event.job_id for event in evidence.events} - evidence.ends.keys():
        yield f"S1: {job_id} was stored and has not ended"
    for job_id in evidence.left:
        yield f"S1: {job_id} is still in the store"
    ids: defaultdict[int, set[str]] = defaultdict(set)
    for job_id, lines in evidence.starts.items():
        ids[lines[0]["n"]].add(job_id)
    for n in evidence.sent.unknown:
        if len(ids[n]) > 1:
            yield f"S1: job {n}, of unknown fate, was stored as {len(ids[n])} jobs"


def _effects(evidence: Evidence) -> Iterable[str]:
    """S11: a job that is done has had its effect; nothing runs that was not claimed; fences rise."""
    callbacks = {line["id"] for line in evidence.ledger.lines("callback")}
    for job_id, end in evidence.ends.items():
        if end == "done" and job_id not in evidence.effects | callbacks:
            yield f"S11: {job_id} is done without its effect"
    for job_id, lines in evidence.starts.items():
        if job_id in evidence.carried:
            continue
        if len(lines) > evidence.claims[job_id]:
            yield f"S6: {job_id} ran {len(lines)} times in {evidence.claims[job_id]} claims"
        fences = [line["fence"] for line in lines]
        if len(set(fences)) < len(fences):
            yield f"fence: two runs of {job_id} had the same fence"


def _outcomes(evidence: Evidence) -> Iterable[str]:
    """S2, as the workers see it: no two of them believe to have ended the same job."""
    for job_id, count in evidence.ledger.per("processed", "id").items():
        if count > 1 and job_id not in evidence.carried:
            yield f"S2: {count} workers have ended {job_id}"
        elif job_id not in evidence.ends:
            yield f"S2: a worker believes to have ended {job_id}, and the store does not"


def _overlaps(evidence: Evidence) -> Iterable[str]:
    """Jobs of one overlap key are never leased at the same time."""
    keys = {
        line["id"]: line["key"]
        for line in evidence.ledger.lines("start")
        if str(line.get("key", "")).startswith("overlap")
    }
    holders: defaultdict[str, set[str]] = defaultdict(set)
    for event in evidence.events:
        key = keys.get(event.job_id)
        if key is None:
            continue
        if event.event == "claim":
            holders[key].add(event.job_id)
            if len(holders[key]) > 1:
                yield f"overlap: {event.job_id} was claimed while another job held {key!r}"
        elif event.event in LEAVES:
            holders[key].discard(event.job_id)


def _batches(evidence: Evidence) -> Iterable[str]:
    """S8: every batch has ended with exact counts, and its callbacks have run."""
    told = Counter((line["of"], line["kind"]) for line in evidence.ledger.lines("callback"))
    for batch_id, numbers in evidence.sent.batches.items():
        state = evidence.batches[batch_id]
        if state is None or not state.finished or not state.sealed:
            yield f"S8: batch {batch_id} has not ended"
            continue
        members = [derived_id(batch_id, index) for index in range(len(numbers))]
        failed = sum(evidence.ends.get(member) != "done" for member in members)
        if (state.total, state.pending, state.failed) != (len(members), 0, failed):
            yield f"S8: batch {batch_id} counts {state.total}, {state.pending}, {state.failed}: {failed} failed"
        wanted = {"finally": 1, "then": int(not failed), "catch": failed}
        for kind, count in wanted.items():
            ran = told[batch_id, kind]
            if ran < count or (not count and ran):
                yield f"S8: batch {batch_id} ran {ran} {kind} callbacks for {count}"


def _chains(evidence: Evidence) -> Iterable[str]:
    """S9: every link was done in its turn, or the chain was cut at the broken one and told it."""
    told = {line["of"] for line in evidence.ledger.lines("callback") if line["kind"] == "on_failure"}
    for chain_id, (length, broken) in evidence.sent.chains.items():
        ends = [evidence.ends.get(derived_id(chain_id, index)) for index in range(length)]
        done = length if broken is None else broken
        expected = ["done"] * done + (["failed"] if broken is not None else [])
        if ends[: len(expected)] != expected or any(ends[len(expected) :]):
            yield f"S9: chain {chain_id} ended as {ends}, not as {expected}"
        if (broken is not None) != (chain_id in told):
            yield f"S9: chain {chain_id} (broken at {broken}) told its failure: {chain_id in told}"
