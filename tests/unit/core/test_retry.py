"""B45: the delays before the next run, whatever the number of runs."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nimbusq import Release
from nimbusq.errors import InvalidOption
from nimbusq.retry import DEFAULT, Backoff, delay_after


def test_the_default_doubles_with_jitter() -> None:
    for attempt, (low, high) in {1: (1, 2), 2: (2, 4), 3: (4, 8), 4: (8, 16), 9: (256, 512)}.items():
        delays = [delay_after(attempt, None) for _ in range(200)]
        assert low <= min(delays) < max(delays) <= high
        assert max(delays) - min(delays) > (high - low) / 2, "the whole width is used"


def test_two_thousand_attempts() -> None:
    policy = Backoff(base=1, cap=3600)
    delays = [policy.delay(attempt) for attempt in range(1, 2001)]
    assert min(delays) > 0
    assert max(delays) <= 3600
    assert min(delays[20:]) >= 1800


@given(
    st.builds(
        Backoff,
        base=st.floats(1e-6, 1e6),
        factor=st.floats(1, 1e6),
        cap=st.floats(1e-6, 1e9),
        jitter=st.floats(0, 1),
    ),
    st.integers(1, 2**31),
)
def test_no_policy_overflows_or_leaves_its_bounds(policy: Backoff, attempt: int) -> None:
    delay = policy.delay(attempt)
    assert math.isfinite(delay)
    assert 0 <= delay <= policy.cap


@given(st.integers(1, 60))
def test_without_jitter_a_later_run_never_waits_less(attempt: int) -> None:
    policy = Backoff(jitter=0)
    assert policy.delay(attempt) <= policy.delay(attempt + 1)


def test_a_thousand_jobs_that_fail_at_once_do_not_return_at_once() -> None:
    slots = Counter(int(DEFAULT.delay(1) / 0.1) for _ in range(1000))
    assert max(slots.values()) <= 250


@pytest.mark.parametrize(
    ("delays", "expected"),
    [
        (5, [5.0, 5.0, 5.0]),
        ([1, 5, 10], [1.0, 5.0, 10.0, 10.0, 10.0]),
        ((7,), [7.0, 7.0]),
        (lambda attempt: attempt * 2, [2.0, 4.0, 6.0]),
        (lambda _: -1, [0.0]),
        (lambda _: math.nan, [0.0]),
        (lambda _: math.inf, [0.0]),
        (0, [0.0, 0.0]),
        (Backoff(base=3, factor=1, jitter=0), [3.0, 3.0]),
    ],
)
def test_other_forms(delays: Any, expected: list[float]) -> None:
    assert [delay_after(attempt, delays) for attempt in range(1, len(expected) + 1)] == expected


@pytest.mark.parametrize(
    "values",
    [{"base": 0}, {"base": -1}, {"factor": 0.5}, {"cap": 0}, {"jitter": 1.1}, {"jitter": -0.1}, {"base": math.nan},
     {"cap": math.inf}, {"base": math.inf}, {"factor": math.inf}],
)  # fmt: skip
def test_a_policy_that_makes_no_sense(values: dict[str, float]) -> None:
    with pytest.raises(InvalidOption, match="Backoff"):
        Backoff(**values)


@pytest.mark.parametrize("delay", [-1, math.nan, math.inf, 1e12])
def test_a_release_takes_a_duration(delay: float) -> None:
    with pytest.raises(InvalidOption):
        Release(delay)
