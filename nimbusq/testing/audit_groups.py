"""What an audit must show of jobs that belong together: unique keys, batches and chains.

A store may write the events of one atomic step in any order. Where a push must follow the end of another job,
it is therefore enough that this job is held and that its very next event is its end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nimbusq.ids import derived_id

Report = Callable[[str, str, str], None]


@dataclass(slots=True)
class _Batch:
    """members: member id -> the job that carries it now. recorded: member id -> it succeeded."""

    members: dict[str, str] = field(default_factory=dict)
    recorded: dict[str, bool] = field(default_factory=dict)
    callbacks: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _Duty:
    """The next event of a job must be its end."""

    rule: str
    subject: str
    text: str


class Groups:
    """Checks S7 (unique), S8 (batches) and S9 (chains)."""

    def __init__(self, report: Report, is_held: Callable[[str], bool]) -> None:
        self._report = report
        self._is_held = is_held
        self._unique: dict[str, str] = {}
        self._unique_of: dict[str, str] = {}
        self._batches: dict[str, _Batch] = {}
        self._links: dict[tuple[str, int], str] = {}
        self._ends: dict[str, str] = {}
        self._duties: dict[str, _Duty] = {}

    def pushed(self, job_id: str, extra: Mapping[str, Any]) -> None:
        again = self._ends.pop(job_id, None) is not None
        if extra.get("unique"):
            self._take_unique(job_id, extra["unique"])
        if extra.get("chain") and not again:
            self._push_link(job_id, extra["chain"], int(extra.get("index") or 0))
        if extra.get("callback") in {"then", "finally"} and not again:
            self._push_callback(job_id, extra["callback"], extra["of"])
        elif extra.get("batch") and extra.get("member"):
            self._push_member(job_id, extra["batch"], extra["member"])

    def step(self, job_id: str, *, ends: bool) -> None:
        """The job has another event."""
        duty = self._duties.pop(job_id, None)
        if duty and not ends:
            self._report(duty.rule, duty.subject, duty.text)

    def ended(self, job_id: str, end: str, extra: Mapping[str, Any]) -> None:
        self._ends[job_id] = end
        key = self._unique_of.pop(job_id, None)
        if key and self._unique.get(key) == job_id:
            del self._unique[key]
        if extra.get("batch") and extra.get("member"):
            self._record(
                extra["batch"], extra["member"], succeeded=end == "done", counted=extra.get("counted")
            )

    def finish(self) -> None:
        for duty in self._duties.values():
            self._report(duty.rule, duty.subject, duty.text)

    def _take_unique(self, job_id: str, key: str) -> None:
        holder = self._unique.get(key)
        if holder and holder != job_id:
            self._report("S7", job_id, f"was stored while {holder} held unique key {key}")
        self._unique[key] = job_id
        self._unique_of[job_id] = key

    def _push_link(self, job_id: str, chain: str, index: int) -> None:
        if (chain, index) in self._links:
            self._report("S9", chain, f"had link {index} pushed twice")
        self._links[chain, index] = job_id
        if index == 0:
            return
        if job_id != derived_id(chain, index):
            self._report("S9", chain, f"has link {index} under the id {job_id}, not derived from the chain")
        before = self._links.get((chain, index - 1), "")
        if self._ends.get(before) != "done":
            self._must_end(before, "S9", chain, f"had link {index} pushed before link {index - 1} was done")

    def _push_member(self, job_id: str, batch_id: str, member: str) -> None:
        batch = self._batches.setdefault(batch_id, _Batch())
        if member not in batch.members and batch.callbacks:
            self._report("S8", batch_id, f"got member {member} after its end")
        batch.members[member] = job_id

    def _push_callback(self, job_id: str, kind: str, batch_id: str) -> None:
        batch = self._batches.setdefault(batch_id, _Batch())
        if kind in batch.callbacks:
            self._report("S8", batch_id, f"had its {kind} callback pushed twice (last as {job_id})")
        batch.callbacks.add(kind)
        if kind == "then" and not all(batch.recorded.values()):
            self._report("S8", batch_id, "had its then callback pushed although a member failed")
        for member, carrier in batch.members.items():
            if member not in batch.recorded:
                self._must_end(carrier, "S8", batch_id, f"ended before its member {member}")

    def _record(self, batch_id: str, member: str, *, succeeded: bool, counted: bool | None) -> None:
        batch = self._batches.setdefault(batch_id, _Batch())
        if member in batch.recorded:
            if counted:
                self._report("S8", batch_id, f"counted member {member} twice")
            return
        if counted is False:
            self._report("S8", batch_id, f"did not count member {member}")
        batch.recorded[member] = succeeded
        if not succeeded and "then" in batch.callbacks:
            self._report("S8", batch_id, f"had its then callback pushed although member {member} failed")

    def _must_end(self, job_id: str, rule: str, subject: str, text: str) -> None:
        if self._is_held(job_id):
            self._duties[job_id] = _Duty(rule, subject, text)
        else:
            self._report(rule, subject, text)
