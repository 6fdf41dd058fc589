"""Is what a store did allowed? Replays its audit through the state machine and names every violation.

In testing mode a driver appends one event per transition, in the same atomic step as the transition:
``(event, job id, token, attempt, extra)``. The events are::

    push     a job was stored                               (token "")
    claim    a token was written, the attempt counted
    ending   a token was written for a job that must not run any more
    lost     a lease was taken back: the token was cleared
    extend   the lease was renewed
    done · failed · cancelled     the job left the store
    retry · release               the token was cleared; a release with token "" put back a queued job

`extra` is a mapping (or its JSON text). No key is required, each one lets more be checked:

=====================  ==========================================================================
at                     the store's time of the step, on every event
run_at                 push, retry, release: when the job is due
max_attempts, unique   push: the limit of runs; the digest of a unique key of mode "slot"
batch, member          push of a member; done, failed, cancelled with a batch record
counted                done, failed, cancelled: whether the record was the member's first
chain, index           push of a link
callback, of           push of a callback: its kind, and the batch or chain it belongs to
fence, lease_until     claim, ending; lease_until also on extend
=====================  ==========================================================================

The invariants, by the names under which they are reported: S2 one terminal outcome at most; S3 no claim after
it; S4 one holder at most; S5 only the holder extends and settles; S6 claims are at most max_attempts and
releases; S7 one active job a unique key; S8 batches count each member once and push each callback once; S9 a
chain's link is pushed once, after its predecessor is done; S10 no job runs before it is due. S1 (nothing that
was accepted is lost) and S11 (each done job had its effect) compare an audit with what clients saw, so they
are asserted where that is known.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from nimbusq.testing.audit_groups import Groups

ENDS: Final = frozenset({"done", "failed", "cancelled"})

TOLERANCE: Final = 0.001
"""Seconds: stores keep times as floats, or as whole milliseconds."""


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """One transition, as the store recorded it."""

    event: str
    job_id: str
    token: str = ""
    attempt: int = 0
    extra: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, row: Sequence[Any]) -> AuditEvent:
        """Read what a driver's ``audit()`` answers."""
        event, job_id, token, attempt, extra = row
        if isinstance(extra, str | bytes):
            extra = json.loads(extra) if extra else {}
        return cls(event, job_id, token or "", attempt or 0, extra or {})


def check(events: Iterable[AuditEvent | Sequence[Any]]) -> list[str]:
    """The violations in the audit of one store, in order; none is the only good answer."""
    replay = _Replay()
    for event in events:
        replay.apply(event if isinstance(event, AuditEvent) else AuditEvent.of(event))
    return replay.finish()


@dataclass(slots=True)
class _Life:
    """A job from its push to its end. `end` is how it ended, "" while it lives."""

    run_at: float
    max_attempts: int | None
    token: str = ""
    claims: int = 0
    releases: int = 0
    fence: int = 0
    lease_until: float = 0.0
    end: str = ""


class _Replay:
    """The state machine, job by job; what binds jobs together is left to `Groups`."""

    def __init__(self) -> None:
        self._lives: dict[str, _Life] = {}
        self._violations: list[str] = []
        self._groups = Groups(self._report, self._is_held)
        self._steps: dict[str, Callable[[AuditEvent, _Life], None]] = {
            "claim": self._claim,
            "ending": self._take,
            "lost": self._lost,
            "extend": self._extend,
            "retry": self._put_back,
            "release": self._put_back,
            **dict.fromkeys(ENDS, self._end),
        }

    def apply(self, event: AuditEvent) -> None:
        life = self._lives.get(event.job_id)
        if event.event == "push":
            self._push(event, life)
        elif event.event not in self._steps:
            self._report("audit", event.job_id, f"has an unknown event {event.event!r}")
        elif life is None:
            self._report("S1", event.job_id, f"had {event.event}, but was never pushed")
        else:
            self._groups.step(event.job_id, ends=event.event in ENDS)
            self._steps[event.event](event, life)

    def finish(self) -> list[str]:
        self._groups.finish()
        return self._violations

    def _report(self, rule: str, subject: str, text: str) -> None:
        self._violations.append(f"{rule}: {subject} {text}")

    def _is_held(self, job_id: str) -> bool:
        life = self._lives.get(job_id)
        return bool(life and life.token)

    def _push(self, event: AuditEvent, life: _Life | None) -> None:
        if life and not life.end:
            self._report("S2", event.job_id, "was pushed twice")
        elif life and life.end != "failed":
            self._report("S3", event.job_id, f"was pushed again after it was {life.end}")
        self._lives[event.job_id] = _Life(event.extra.get("run_at") or 0.0, event.extra.get("max_attempts"))
        self._groups.pushed(event.job_id, event.extra)

    def _claim(self, event: AuditEvent, life: _Life) -> None:
        self._take(event, life)
        life.claims += 1
        if life.max_attempts is not None:
            if life.claims > life.max_attempts + life.releases:
                self._report("S6", event.job_id, f"was claimed {life.claims} times, of {life.max_attempts}")
            elif event.attempt > life.max_attempts:
                self._report("S6", event.job_id, f"is at attempt {event.attempt} of {life.max_attempts}")
        if "at" in event.extra and event.extra["at"] < life.run_at - TOLERANCE:
            early = life.run_at - event.extra["at"]
            self._report("S10", event.job_id, f"was claimed {early:.3f} s before it was due")

    def _take(self, event: AuditEvent, life: _Life) -> None:
        """A token is written, to run the job or to end it."""
        if life.end:
            self._report("S3", event.job_id, f"was claimed after it was {life.end}")
        elif life.token:
            self._report("S4", event.job_id, f"was claimed by {event.token} while {life.token} held it")
        life.token = event.token
        life.lease_until = event.extra.get("lease_until") or 0.0
        if (fence := event.extra.get("fence")) is not None:
            if fence <= life.fence:
                self._report("fence", event.job_id, f"has fence {fence} after {life.fence}")
            life.fence = fence

    def _lost(self, event: AuditEvent, life: _Life) -> None:
        if not life.token or life.token != event.token:
            self._report("S4", event.job_id, f"lost the lease of {event.token or 'nobody'}, which had none")
        elif event.extra.get("at", life.lease_until) < life.lease_until - TOLERANCE:
            self._report("S4", event.job_id, "lost its lease before it ended")
        life.token = ""

    def _extend(self, event: AuditEvent, life: _Life) -> None:
        self._holder_only(event, life)
        life.lease_until = max(life.lease_until, event.extra.get("lease_until") or 0.0)

    def _put_back(self, event: AuditEvent, life: _Life) -> None:
        if event.token or life.token or life.end:
            self._holder_only(event, life)
        if event.event == "release":
            life.releases += 1
        life.token = ""
        life.run_at = event.extra.get("run_at") or 0.0

    def _end(self, event: AuditEvent, life: _Life) -> None:
        self._holder_only(event, life)
        life.token = ""
        life.end = event.event
        self._groups.ended(event.job_id, event.event, event.extra)

    def _holder_only(self, event: AuditEvent, life: _Life) -> None:
        if life.end and event.event in ENDS:
            self._report("S2", event.job_id, f"was {event.event} after it was {life.end}")
        elif not life.token or life.token != event.token:
            holder = life.token or "nobody"
            self._report(
                "S5", event.job_id, f"had {event.event} by {event.token or 'nobody'}, held by {holder}"
            )
