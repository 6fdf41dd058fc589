"""What this member has in its hands: claims, from the commit that carries them to the one that ends them."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from nimbusq.driver import Claim
from nimbusq_kafka.partition import Partition
from nimbusq_kafka.records import Counters, Received


class Stage(enum.Enum):
    """How far a claim has come."""

    CLAIMED = "claimed"
    """Its commit is on the way: it must not start yet."""
    RUNNING = "running"
    ENDED = "ended"
    """All that follows is written and its offset is marked; the commit that covers the mark is to come."""


class Place(NamedTuple):
    """A claim's receipt: where its record is."""

    topic: str
    partition: int
    offset: int


@dataclass(slots=True)
class Hold:
    """One claim. `stage` is moved on by the consumer's event loop only; `held` is the hands' own."""

    claim: Claim
    partition: Partition
    record: Received
    counters: Counters
    stage: Stage = Stage.CLAIMED
    held: bool = True
    """False when the claim is over, came to nothing, or is another member's."""
    tried_at: float | None = None
    """When its settlement was last tried, on the monotonic clock."""


class Hands:
    """All holds. Written by the consumer's event loop; other threads may ask `holds`, two look-ups, each of which the
    interpreter makes atomic."""

    def __init__(self) -> None:
        self._by_token: dict[str, dict[Place, Hold]] = {}

    def __iter__(self) -> Iterator[Hold]:
        return chain.from_iterable(siblings.values() for siblings in self._by_token.values())

    def take(self, token: str, holds: Iterable[Hold]) -> None:
        """What a claiming call has taken."""
        self._by_token.setdefault(token, {}).update((hold.claim.receipt, hold) for hold in holds)

    def drop(self, hold: Hold) -> None:
        """The claim is over, or came to nothing."""
        if not hold.held:
            return
        hold.held = False
        siblings = self._by_token.get(hold.claim.token, {})
        siblings.pop(hold.claim.receipt, None)
        if not siblings:
            self._by_token.pop(hold.claim.token, None)

    def find(self, claim: Claim) -> Hold | None:
        """The claim's hold, if it is held still, and was made as it says."""
        siblings = self._by_token.get(claim.token)
        if siblings is None or not isinstance(claim.receipt, Place):
            return None
        hold = siblings.get(claim.receipt)
        return hold if hold is not None and hold.claim.id == claim.id else None

    def holds(self, claim: Claim) -> bool:
        """The claim is held, and its outcome is open."""
        hold = self.find(claim)
        return hold is not None and hold.stage is not Stage.ENDED

    def of_token(self, token: str) -> list[Hold]:
        """The claims that one claiming call has brought and that are held still."""
        return list(self._by_token.get(token, {}).values())

    def at(self, stage: Stage) -> list[Hold]:
        return [hold for hold in self if hold.stage is stage]

    def drop_all_of(self, partitions: Iterable[Partition]) -> list[Hold]:
        """These partitions are another member's now: its claims are void. Which they were."""
        gone = set(partitions)
        lost = [hold for hold in self if hold.partition in gone]
        for hold in lost:
            self.drop(hold)
        return lost
