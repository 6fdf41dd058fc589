"""Where claims of a backlog begin: behind what has left, and never past a job for longer than a tenth of a second."""

from __future__ import annotations

from typing import Any

import pytest

from nimbusq.driver import Lane, Want
from nimbusq_database.fronts import Fronts

WHOLE: dict[str, Any] = {"fronts": [0.0], "first_seqs": [0], "reaches": [0], "lapsed_after": 0.0}


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def fronts(clock: Clock) -> Fronts:
    return Fronts(clock)


def want(limit: int, *queues: str, closed: str = "") -> Want:
    lanes = tuple(Lane(queue=queue, limit=0 if queue == closed else limit) for queue in queues or ("mail",))
    return Want(token="t", limit=limit, lease=30, lanes=lanes)


def row(run_at: float, queue: str = "mail", priority: int = 5, seq: int = 7) -> dict[str, Any]:
    return {"queue": queue, "priority": priority, "run_at": run_at, "seq": seq, "now": 1000.0}


def test_a_full_claim_is_followed_from_its_first_job(fronts: Fronts) -> None:
    fronts.parameters(want(2).lanes)
    fronts.note(want(2), [row(900.0, seq=3), row(900.0, seq=4)])
    known = {"fronts": [900.0], "first_seqs": [3], "reaches": [5], "lapsed_after": 999.0}
    assert fronts.parameters(want(2).lanes) == known


def test_jobs_of_the_last_second_are_looked_through_always(fronts: Fronts) -> None:
    """Their pushes may be committed in another order than that of their times."""
    fronts.parameters(want(2).lanes)
    fronts.note(want(2), [row(999.5), row(999.6)])
    known = fronts.parameters(want(2).lanes)
    assert (known["fronts"], known["first_seqs"]) == ([999.0], [0])


@pytest.mark.parametrize("rows", [[], [row(900.0)]])
def test_a_claim_that_is_not_full_is_followed_by_a_whole_look(
    fronts: Fronts, rows: list[dict[str, Any]]
) -> None:
    fronts.parameters(want(2).lanes)
    fronts.note(want(2), [row(900.0), row(910.0)])
    fronts.note(want(2), rows)
    assert fronts.parameters(want(2).lanes) == WHOLE


def test_a_claim_that_its_queues_limit_is_full_as_well(fronts: Fronts) -> None:
    """A worker of ten slots that may run two jobs of this queue."""
    wanted = Want(token="t", limit=10, lease=30, lanes=(Lane(queue="mail", limit=2),))
    fronts.parameters(wanted.lanes)
    fronts.note(wanted, [row(900.0), row(910.0)])
    assert fronts.parameters(wanted.lanes)["fronts"] == [900.0]


def test_a_claim_for_nothing_says_nothing(fronts: Fronts) -> None:
    """A worker without a free slot looks for lost leases only."""
    fronts.note(want(0), [])
    assert fronts.parameters(want(2).lanes) == WHOLE


def test_every_tenth_of_a_second_there_is_a_whole_look(fronts: Fronts, clock: Clock) -> None:
    fronts.parameters(want(2).lanes)
    for _ in range(3):
        clock.now += 0.03
        fronts.note(want(2), [row(900.0), row(910.0)])
        assert fronts.parameters(want(2).lanes)["fronts"] == [900.0]
    clock.now += 0.03
    assert fronts.parameters(want(2).lanes) == WHOLE


def test_a_front_reaches_as_far_as_the_claim_has_looked(fronts: Fronts) -> None:
    """Down to the priority of its last job, and none of an earlier one is older than its oldest."""
    fronts.parameters(want(3).lanes)
    fronts.note(want(3), [row(950.0, priority=1, seq=1), row(900.0, priority=4), row(920.0, priority=4)])
    known = {"fronts": [900.0], "first_seqs": [7], "reaches": [4], "lapsed_after": 999.0}
    assert fronts.parameters(want(3).lanes) == known


def test_each_queue_has_its_own_front(fronts: Fronts) -> None:
    """An empty one, one that was closed, one with jobs, and one that the claim did not come to."""
    queues = ("empty", "closed", "mail", "behind")
    wanted = want(2, *queues, closed="closed")
    fronts.parameters(wanted.lanes)
    fronts.note(wanted, [row(900.0), row(910.0)])
    known = fronts.parameters(wanted.lanes)
    assert (known["fronts"], known["reaches"]) == ([999.0, 0.0, 900.0, 0.0], [10, 0, 5, 0])
