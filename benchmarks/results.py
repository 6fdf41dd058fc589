"""What was measured: per peer and figure one value a round; medians, and ratios within a round."""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.aims import Aim, smaller_is_better
from benchmarks.catalogue import Driver, Entry

Rounds = dict[int, float]


@dataclass(slots=True)
class Results:
    """Of one driver, in one interleaved run. `values` is by peer, then figure, then round."""

    driver: Driver
    entries: list[Entry]
    values: dict[str, dict[str, Rounds]] = field(default_factory=dict)
    troubles: list[str] = field(default_factory=list)
    """What went wrong: a peer that lost or repeated jobs has no figures for that workload and round."""

    def add(self, peer: str, number: int, figures: dict[str, float]) -> None:
        """One workload's figures of one round."""
        for figure, value in figures.items():
            self.values.setdefault(peer, {}).setdefault(figure, {})[number] = value

    def figures(self) -> list[str]:
        """Every figure that somebody has, in the order of measuring."""
        return list(dict.fromkeys(figure for values in self.values.values() for figure in values))

    def median(self, peer: str, figure: str) -> float | None:
        values = self.values.get(peer, {}).get(figure)
        return statistics.median(values.values()) if values else None

    def best(self, figure: str, *, recovering: bool = False) -> str | None:
        """The peer with the best median."""
        medians = {
            entry.name: median
            for entry in self.entries
            if not entry.ours and (entry.recovers or not recovering)
            if (median := self.median(entry.name, figure)) is not None
        }
        if not medians:
            return None
        choose = min if smaller_is_better(figure) else max
        return choose(medians, key=medians.__getitem__)

    def ratio(self, figure: str, rival: str) -> float | None:
        """The median over the rounds of nimbusq's figure over the rival's in the same round."""
        ours, theirs = (self.values.get(name, {}).get(figure, {}) for name in ("nimbusq", rival))
        ratios = [ours[number] / theirs[number] for number in ours if number in theirs]
        return statistics.median(ratios) if ratios else None

    def value(self, aim: Aim) -> float | None:
        """What the aim limits, or None where it was not measured."""
        if aim.rival is None:
            return self.median("nimbusq", aim.figure)
        rival = self.best(aim.figure, recovering=aim.rival == "best recovering peer")
        return None if rival is None else self.ratio(aim.figure, rival)

    def save(self, path: Path) -> None:
        """Keep every single value."""
        path.write_text(
            json.dumps({"driver": self.driver, "values": self.values, "troubles": self.troubles}, indent=1)
        )
