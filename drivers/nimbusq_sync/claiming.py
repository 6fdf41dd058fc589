"""Claim, extend, and the taking back of lost leases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from nimbusq.driver import Claim, Claimed, Ending, Lane, Lost, Renewal, Want
from nimbusq_sync import rates
from nimbusq_sync.row import Row
from nimbusq_sync.state import State

_ENDINGS: Final = 50
"""At most so many lost leases and endings a call, so that a slot is not kept waiting by them."""
_LOOKS: Final = 500
"""At most so many jobs are looked at under the lock; the call then goes on in another step."""
_NEVER: Final = float("inf")


class ClaimStep:
    """One atomic step of a claim: what it found, and when to look again if that was nothing."""

    def __init__(self, state: State, want: Want) -> None:
        self._state = state
        self._want = want
        self._now = state.now()
        self._claims: list[Claim] = []
        self._lost: list[Lost] = []
        self._slots = want.limit
        self._endings = 0
        self._looks = 0
        self._retry_after = _NEVER
        self._wake_at = _NEVER

    def run(self) -> Claimed:
        """Take back lost leases, then answer a repeated call as before, or serve the lanes in order."""
        self._reclaim()
        held = self._state.held.get(self._want.token)
        if held and not self._claims:
            self._claims = [row.claim for row in held.values() if row.claim]
        else:
            for lane in self._want.lanes:
                if self._slots <= 0:
                    break
                self._serve(lane)
        retry_after = None if self._retry_after == _NEVER else self._retry_after
        return Claimed(self._claims, self._lost, retry_after)

    @property
    def delay(self) -> float:
        """Seconds until a lease ends, a job gets due or a rate opens; 0 where more can be done at once."""
        first = self._state.leases.first()
        wake_at = min(self._wake_at, first[0]) if first else self._wake_at
        return max(0.0, wake_at - self._now)

    def _reclaim(self) -> None:
        leases = self._state.leases
        while (first := leases.first()) and first[0] <= self._now:
            row = first[2]
            if row.lease_until > self._now:
                leases.postpone(row.lease_until)
            elif self._endings + len(self._lost) >= _ENDINGS:
                return
            else:
                self._take_back(row)

    def _take_back(self, row: Row) -> None:
        state, now = self._state, self._now
        assert row.token is not None, "what stands in the leases has a token"
        state.note("lost", row, row.token, now)
        state.unlease(row, row.token)
        if row.ending is None:
            row.reclaims += 1
            self._lost.append(Lost(id=row.id, queue=row.queue, envelope=row.envelope, attempt=row.attempt))
            if row.cancel_asked:
                row.ending = Ending.CANCELLED
            elif row.attempt >= row.header.max_attempts:
                row.ending = Ending.LOST
        if row.ending is None:
            row.run_at = now
            state.line_up(row, now)
        else:
            self._hand_out(row)

    def _serve(self, lane: Lane) -> None:
        queue = self._state.queues.get(lane.queue)
        if queue is None or queue.paused:
            return
        room = min(lane.limit, self._slots)
        if room <= 0:
            return
        while room > 0 and (row := queue.next_due(self._now)):
            self._looks += 1
            if self._looks > _LOOKS or self._endings >= _ENDINGS:
                break
            if self._ends(row):
                continue
            if lane.rate and (wait := rates.retry_after(self._state.rates, lane.rate, self._now)):
                self._wait_for_rate(wait)
                return
            if self._held_back(row):
                continue
            self._start(row, lane)
            room -= 1
        self._wake_at = min(self._wake_at, queue.wakes_at())

    def _ends(self, row: Row) -> bool:
        """Hand the job out with its ending, if it must not run any more."""
        ending = row.ending or self._ending_of(row)
        if ending is None:
            return False
        self._leave_line(row)
        row.ending = ending
        self._hand_out(row)
        return True

    def _ending_of(self, row: Row) -> Ending | None:
        if row.cancel_asked:
            return Ending.CANCELLED
        if row.expires_at <= self._now:
            return Ending.EXPIRED
        batch_id = row.header.batch_id
        if batch_id and (batch := self._state.batches.get(batch_id, self._now)) and batch.cancelled:
            return Ending.CANCELLED
        return None

    def _held_back(self, row: Row) -> bool:
        """Put the job back, if its rate or its overlap key does not let it start."""
        rate, overlap = row.header.rate, row.header.overlap
        if rate and (wait := rates.retry_after(self._state.rates, rate, self._now)):
            self._wait_for_rate(wait)
            self._put_back(row, wait)
            return True
        if overlap is None or row.overlap is None:
            return False
        if len(live_holders(self._state, row.overlap, self._now)) < overlap.limit:
            return False
        if overlap.max_releases is not None and row.blocks >= overlap.max_releases:
            row.ending = Ending.BLOCKED
            return self._ends(row)
        row.blocks += 1
        row.releases += 1
        self._put_back(row, overlap.release_after)
        return True

    def _put_back(self, row: Row, delay: float) -> None:
        self._leave_line(row)
        row.run_at = round(self._now + delay, 6)
        self._state.note("release", row, "", self._now, run_at=row.run_at)
        self._state.line_up(row, self._now)

    def _wait_for_rate(self, seconds: float) -> None:
        self._retry_after = min(self._retry_after, seconds)
        self._wake_at = min(self._wake_at, self._now + seconds)

    def _start(self, row: Row, lane: Lane) -> None:
        state, now = self._state, self._now
        self._leave_line(row)
        row.attempt += 1
        self._slots -= 1
        if lane.rate:
            rates.spend(state.rates, lane.rate, now)
        if row.header.rate:
            rates.spend(state.rates, row.header.rate, now)
        if row.overlap:
            state.overlaps.setdefault(row.overlap, {})[row.id] = row
        self._claims.append(lease(state, row, self._want.token, self._want.lease, now))

    def _hand_out(self, row: Row) -> None:
        self._endings += 1
        self._claims.append(lease(self._state, row, self._want.token, self._want.lease, self._now))

    def _leave_line(self, row: Row) -> None:
        """Take the job that heads its line out of it."""
        assert row.agenda is not None, "a job that is not leased and not paused stands in a line"
        row.agenda.pop()


def lease(state: State, row: Row, token: str, seconds: float, now: float) -> Claim:
    """Put the row, which stands nowhere, under a lease."""
    state.lease(row, token, round(now + seconds, 6), now)
    event = "ending" if row.ending else "claim"
    state.note(event, row, token, now, fence=row.fence, lease_until=row.lease_until)
    row.claim = Claim(
        id=row.id,
        queue=row.queue,
        envelope=row.envelope,
        attempt=row.attempt,
        token=token,
        releases=row.releases,
        fence=row.fence,
        run_at=row.run_at,
        waited=max(0.0, now - row.run_at),
        reclaimed=row.reclaims > 0,
        ending=row.ending,
    )
    return row.claim


def live_holders(state: State, overlap: str, now: float) -> list[str]:
    """Ids of the jobs that hold the key: leased, and renewed less than `expire_after` ago."""
    return [job_id for job_id, row in state.overlaps.get(overlap, {}).items() if _holds(row, now)]


def _holds(row: Row, now: float) -> bool:
    assert row.header.overlap is not None, "a holder has an overlap key"
    return min(row.lease_until, row.renewed_at + row.header.overlap.expire_after) > now


def extend(state: State, claims: Sequence[Claim], seconds: float) -> list[Renewal]:
    """Renew the leases that are still the claims'; an expired one too, while nobody has taken it back."""
    now = state.now()
    return [_renew(state, claim, seconds, now) for claim in claims]


def _renew(state: State, claim: Claim, seconds: float, now: float) -> Renewal:
    row = state.rows.get(claim.id)
    if row is None or row.token != claim.token:
        return Renewal.LOST
    row.lease_until = max(row.lease_until, round(now + seconds, 6))
    row.renewed_at = now
    state.note("extend", row, claim.token, now, lease_until=row.lease_until)
    return Renewal.CANCEL if row.cancel_asked else Renewal.RENEWED
