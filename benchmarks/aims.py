"""What nimbusq aims at, as ratios to its peers in the same run or to itself, and a few absolute limits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from benchmarks.catalogue import Driver

Rival = Literal["best peer", "best recovering peer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """A limit on a figure of nimbusq, or on its ratio to a rival's. Exactly one of the two limits is set.

    best recovering peer: the best of those that give a killed worker's jobs to another one by default.
    """

    figure: str
    rival: Rival | None = None
    at_least: float | None = None
    at_most: float | None = None

    def met(self, value: float) -> bool:
        if self.at_least is not None:
            return value >= self.at_least
        return self.at_most is None or value <= self.at_most

    def __str__(self) -> str:
        sign, limit = ("≤", self.at_most) if self.at_least is None else ("≥", self.at_least)
        return f"{sign} {limit:g}" + (f" x {self.rival}" if self.rival else "")


def smaller_is_better(figure: str) -> bool:
    """Times and memory; rates are better when greater."""
    return figure.endswith(("ms", "us", "MB", "ideal", "50,000 ÷ 5,000"))


def _best(**limits: float) -> Iterable[Aim]:
    """At least that many times the best peer."""
    for figure, limit in limits.items():
        yield Aim(figure=_NAMES[figure], rival="best peer", at_least=limit)


def _itself(**limits: float) -> Iterable[Aim]:
    """At least that value."""
    for figure, limit in limits.items():
        yield Aim(figure=_NAMES[figure], at_least=limit)


_NAMES: Final = {
    "drain": "drain /s",
    "drain_at_10": "drain at 10 /s",
    "enqueue": "enqueue /s",
    "bulk": "bulk /s",
    "two": "2 processes /s",
    "at_once": "at once ÷ one",
    "depth": "200,000 ÷ 1,000",
    "delayed": "beside ÷ without",
}

_MEMORY: Final = (Aim(figure="RSS MB", at_most=60), Aim(figure="RSS 50,000 ÷ 5,000", at_most=1.05))

AIMS: Final[dict[Driver, tuple[Aim, ...]]] = {
    "redis": (
        *_best(drain=2.0, drain_at_10=1.5, enqueue=0.85, bulk=4.0, two=1.5),
        Aim(figure="enqueue /s", rival="best recovering peer", at_least=1.2),
        Aim(figure="p50 ms", rival="best peer", at_most=1.0),
        Aim(figure="p99 ms", rival="best peer", at_most=1.5),
        *_itself(at_once=3.0, depth=0.9, delayed=0.9),
        Aim(figure="drain us", at_most=60),
        Aim(figure="naps ÷ ideal", at_most=1.1),
        *_MEMORY,
    ),
    "postgres": (
        *_best(drain=1.5, drain_at_10=4.0, enqueue=1.0, bulk=1.5, two=1.3),
        Aim(figure="p50 ms", rival="best peer", at_most=1.0),
        Aim(figure="p99 ms", rival="best peer", at_most=1.0),
        *_itself(at_once=2.0, depth=0.8, delayed=0.9),
        Aim(figure="drain us", at_most=60),
        Aim(figure="naps ÷ ideal", at_most=1.15),
        *_MEMORY,
    ),
    "sqlite": (
        *_best(drain=3.0, drain_at_10=3.0, enqueue=1.5, bulk=5.0, two=1.0),
        Aim(figure="p50 same process ms", rival="best peer", at_most=1.0),
        Aim(figure="p95 ms", at_most=100),
        *_itself(depth=0.8, delayed=0.9),
        Aim(figure="naps ÷ ideal", at_most=1.15),
        *_MEMORY,
    ),
    "mariadb": (*_itself(depth=0.7), Aim(figure="naps ÷ ideal", at_most=1.2), *_MEMORY),
    "kafka": (*_best(drain=0.15), Aim(figure="naps ÷ ideal", at_most=1.25), *_MEMORY),
    "sqs": _MEMORY,
}
