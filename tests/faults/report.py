"""What a chaos run was to do, what it has shown, and whether that says anything."""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path

from nimbusq.worker.report import installed_version
from tests.faults.nemesis import FREEZE, OF_SERVERS, SHARES
from tests.faults.verdict import Evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """lease: seconds. workers: processes at work at the same time, each with `concurrency` slots.

    freezes (past the lease), server_kills, cuts: at least so many; with 0 their number follows from the kills.
    """

    driver: str
    jobs: int = 10_000
    kills: int = 50
    seed: int = 1
    lease: float = 2.0
    workers: int = 3
    concurrency: int = 8
    freezes: int = 0
    server_kills: int = 0
    cuts: int = 0

    @property
    def least(self) -> dict[str, int]:
        """How often each fault must hit by the last kill."""
        wanted = {FREEZE: self.freezes, "server kill": self.server_kills, "cut": self.cuts}
        return {name: wanted.get(name) or int(self.kills * share) for name, share in SHARES.items()}


@dataclass
class Report:
    """What a run has shown. void: faults that have not hit often enough."""

    plan: Plan
    struck: Counter[str] = field(default_factory=Counter)
    seen: dict[str, float] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    void: list[str] = field(default_factory=list)

    @property
    def code(self) -> int:
        return 1 if self.violations else 2 if self.void else 0

    def keep_in(self, folder: Path) -> None:
        """Beside the ledger and the workers' logs; the seed and the plan repeat the run."""
        facts = {name: value for name, value in vars(self).items() if name != "plan"}
        about = {"version": installed_version(), "python": sys.version, "plan": asdict(self.plan)}
        (folder / "report.json").write_text(json.dumps(about | facts, indent=1))

    def text(self) -> str:
        struck = ", ".join(f"{count} x {name}" for name, count in sorted(self.struck.items()))
        seen = ", ".join(f"{name} {value:g}" for name, value in self.seen.items())
        verdict = [f"VIOLATION {text}" for text in self.violations[:30]] + [
            f"VOID {text}" for text in self.void
        ]
        return "\n".join([f"{self.plan.driver}: {struck}", seen, *(verdict or ["nothing is wrong"])])


def figures(evidence: Evidence, begun_at: float, healed_at: float, drained_at: float) -> dict[str, float]:
    events = Counter(event.event for event in evidence.events)
    runs = sum(len(lines) for lines in evidence.starts.values())
    return {
        "jobs stored": events["push"],
        "done": events["done"],
        "failed": events["failed"],
        "runs": runs,
        "transitions": len(evidence.events),
        "leases expired": evidence.expired,
        "leases lost by live workers": evidence.ledger.count("lease_lost"),
        "sends of unknown fate": evidence.sent.lost_sends,
        "duplicates refused": evidence.sent.duplicates,
        "batches": len(evidence.sent.batches),
        "chains": len(evidence.sent.chains),
        "storm (s)": round(healed_at - begun_at, 1),
        "drained after (s)": round(drained_at - healed_at, 1),
    }


def missing(report: Report, *, has_server: bool) -> list[str]:
    """Faults that have not hit: without them a clean verdict says nothing."""
    kills = report.plan.kills
    # A worker that was frozen may hold nothing at that moment: a storm of a minute can do without such a loss.
    wanted = {"leases expired": kills // 2, "leases lost by live workers": kills // 40}
    wanted |= {
        name: least for name, least in report.plan.least.items() if has_server or name not in OF_SERVERS
    }
    if has_server:
        wanted["replies lost"] = wanted.pop("reply to lose") // 2  # not every request comes in time
    hit = {**report.seen, **report.struck}
    return [
        f"{hit.get(name, 0):g} x {name}, at least {least} wanted"
        for name, least in wanted.items()
        if hit.get(name, 0) < least
    ]
