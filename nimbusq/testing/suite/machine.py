"""Any order of calls: a hypothesis state machine drives the driver and the model side by side."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, ClassVar, TypeVar, cast

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from nimbusq.driver import Cancelled, Claim, Done, Failed, Outcome, PutBack, Renewal, Retry, SettleStatus
from nimbusq.envelope import Envelope, Unique
from nimbusq.testing.suite.hands import Hands, new_id
from nimbusq.testing.suite.model import LEASE, Model
from nimbusq.testing.suite.needs import needs

T = TypeVar("T")


class ModelSuite:
    """examples, steps: how many programs are tried, of how many calls each.

    shrink: look for the shortest program that fails, which may take minutes. Hypothesis keeps the failing
    program, so that setting it and running the test again is enough.
    """

    examples: ClassVar[int] = 200
    steps: ClassVar[int] = 50
    shrink: ClassVar[bool] = False

    @needs("atomic steps", "timed leases", "priorities")
    async def test_any_order_of_calls(self, hands: Hands) -> None:
        phases = [Phase.explicit, Phase.reuse, Phase.generate, *([Phase.shrink] if self.shrink else [])]
        bridge = Bridge(asyncio.get_running_loop())
        try:
            await asyncio.to_thread(
                run_state_machine_as_test,
                cast("type[RuleBasedStateMachine]", lambda: Machine(hands, bridge)),  # any factory will do
                settings=settings(
                    max_examples=self.examples,
                    stateful_step_count=self.steps,
                    phases=phases,
                    deadline=None,
                    suppress_health_check=list(HealthCheck),
                ),
            )
        finally:
            bridge.closed.set()


class Bridge:
    """Hypothesis calls its rules in a thread; the driver stays on the test's event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.closed = threading.Event()
        self._loop = loop

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        """Run the call on the loop. After the test was cut off, by its timeout say, the thread ends here."""
        if self.closed.is_set():
            call.close()
            raise RuntimeError("the test is over")
        return asyncio.run_coroutine_threadsafe(call, self._loop).result(timeout=30)


class Machine(RuleBasedStateMachine):
    """One program: it has a queue of its own in the driver under test, and ends every job that is left."""

    def __init__(self, hands: Hands, bridge: Bridge) -> None:
        super().__init__()
        self.hands = replace(hands, queue=f"m{new_id()}")
        self.do = bridge.run
        self.model = Model()
        self.claims: list[Claim] = []

    @rule(
        priority=st.sampled_from([1, 5, 10]),
        delay=st.sampled_from([0, 0, 0, 1, 3]),
        max_attempts=st.integers(1, 3),
        key=st.sampled_from([None, None, "a", "b"]),
    )
    def push(self, priority: int, delay: int, max_attempts: int, key: str | None) -> None:
        envelope = self.hands.envelope(
            name=self.hands.queue,  # unique keys belong to a job name, and stores to many programs
            priority=priority,
            delay=delay * self.hands.tick,
            max_attempts=max_attempts,
            unique=Unique(key=key) if key else None,
        )
        expected = self.model.push(envelope.id, priority, delay, max_attempts, key)
        for _ in range(2):  # a repeated push changes nothing
            (pushed,) = self.do(self.hands.adapter.push([envelope]))
            assert pushed.holder == expected

    @rule(limit=st.integers(0, 4))
    def claim(self, limit: int) -> None:
        want = self.hands.want(limit, lease=LEASE * self.hands.tick)
        lost, ending = self.model.reclaim()
        places = self.model.claimable()
        claimed = self.do(self.hands.adapter.claim(want))
        again = self.do(self.hands.adapter.claim(want))

        mine = [claim for claim in claimed.claims if claim.queue == self.hands.queue]
        assert {loss.id for loss in claimed.lost if loss.queue == self.hands.queue} >= lost
        assert {claim.id for claim in mine if claim.ending} == ending
        runs = [claim for claim in mine if not claim.ending]
        assert sorted(self.model.jobs[claim.id].place for claim in runs) == places[:limit]
        if mine:
            assert {(claim.id, claim.fence) for claim in again.claims} == {
                (claim.id, claim.fence) for claim in claimed.claims
            }
        for claim in mine:
            job = self.model.claim(claim.id, claim.token)
            assert (claim.attempt, claim.releases) == (job.attempt, job.releases)
        self.claims += mine

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), ticks=st.integers(1, 4))
    def extend(self, data: st.DataObject, ticks: int) -> None:
        claim = data.draw(st.sampled_from(self.claims))
        holds = self.model.holds(claim.id, claim.token)
        renewal = self.do(self.hands.extend(claim, ticks=ticks))
        assert renewal is (Renewal.RENEWED if holds else Renewal.LOST)
        if holds:
            job = self.model.jobs[claim.id]
            job.until = max(job.until, self.model.now + ticks)

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), outcome=st.sampled_from([Done(), Failed("x"), Cancelled("x")]))
    def end(self, data: st.DataObject, outcome: Outcome) -> None:
        """By whatever claim was ever made, current or stale."""
        claim = data.draw(st.sampled_from(self.claims))
        holds = self.model.holds(claim.id, claim.token)
        settled = self.do(self.hands.settle(claim, outcome))
        assert (settled.status is SettleStatus.SETTLED) == holds
        if holds:
            self.model.end(claim.id)

    @precondition(lambda self: self.runs())
    @rule(data=st.data(), delay=st.integers(0, 2), counted=st.booleans())
    def release(self, data: st.DataObject, delay: int, counted: bool) -> None:
        claim = data.draw(st.sampled_from(self.runs()))
        holds = self.model.holds(claim.id, claim.token)
        settled = self.do(self.hands.settle(claim, PutBack(delay * self.hands.tick, counted=counted)))
        assert (settled.status is SettleStatus.SETTLED) == holds
        if holds:
            self.model.put_back(claim.id, delay, attempt=1, release=int(counted))

    @precondition(lambda self: self.runs(retriable=True))
    @rule(data=st.data(), delay=st.integers(0, 2))
    def retry(self, data: st.DataObject, delay: int) -> None:
        claim = data.draw(st.sampled_from(self.runs(retriable=True)))
        holds = self.model.holds(claim.id, claim.token)
        settled = self.do(self.hands.settle(claim, Retry(delay * self.hands.tick, "x")))
        assert (settled.status is SettleStatus.SETTLED) == holds
        if holds:
            self.model.put_back(claim.id, delay, attempt=0, release=0)

    def runs(self, *, retriable: bool = False) -> list[Claim]:
        """Claims of runs, old ones too; retriable: those after which core may ask for another run."""
        runs = [claim for claim in self.claims if not claim.ending]
        return [claim for claim in runs if claim.attempt < _max_attempts(claim)] if retriable else runs

    @rule(ticks=st.integers(1, 4))
    def time_passes(self, ticks: int) -> None:
        """A worker that crashes is one that makes no further call until its leases have ended."""
        self.do(self.hands.pass_ticks(ticks))
        self.model.now += ticks

    @invariant()
    def counts_agree(self) -> None:
        assert self.do(self.hands.counts()) == self.model.depth()

    def teardown(self) -> None:
        """Leave nothing behind that the next program could meet."""
        for claim in self.claims:
            if self.model.holds(claim.id, claim.token):
                self.do(self.hands.settle(claim))
                self.model.end(claim.id)
        self.do(self.hands.pass_ticks(LEASE + 1))
        for claim in self.do(self.hands.claim_all()):
            self.do(self.hands.settle(claim))


def _max_attempts(claim: Claim) -> int:
    assert isinstance(claim.envelope, Envelope)
    return claim.envelope.max_attempts
