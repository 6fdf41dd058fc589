"""Who gets which partition: each topic shared out evenly, with as few moves as that takes.

aiokafka's own sticky assignor balances the sum over all topics, so that a new worker may get nothing but delay
topics; it does not know which partitions have jobs running, and it keeps its memory in class attributes, which
two consumers of one process would share.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata

Place = tuple[str, int]
"""Topic and partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a member says when it joins. busy: of those it owned, the partitions whose jobs are running now."""

    topics: frozenset[str]
    owned: frozenset[Place] = frozenset()
    busy: frozenset[Place] = field(default=frozenset())


def share_out(partitions: Mapping[str, Iterable[int]], wishes: Mapping[str, Wish]) -> dict[str, list[Place]]:
    """The partitions of each member. Each topic's subscribers get equal numbers of its partitions, give or take
    one; within that a member keeps what it owned, first what is busy."""
    shares: dict[str, list[Place]] = {member: [] for member in wishes}
    for topic in sorted(partitions):
        takers = [member for member in sorted(wishes) if topic in wishes[member].topics]
        if takers:
            _share_out_topic(
                [(topic, number) for number in sorted(partitions[topic])], takers, wishes, shares
            )
    return shares


def _share_out_topic(
    places: list[Place], takers: list[str], wishes: Mapping[str, Wish], shares: dict[str, list[Place]]
) -> None:
    least, more = divmod(len(places), len(takers))
    free, kept = dict.fromkeys(places), Counter[str]()
    for member in sorted(takers, key=lambda taker: -len(wishes[taker].owned.intersection(places))):
        wish = wishes[member]
        mine = sorted(wish.owned.intersection(free), key=lambda place: (place not in wish.busy, place))
        quota = least + (more > 0)
        for place in mine[:quota]:
            del free[place]
            kept[member] += 1
            shares[member].append(place)
        more -= kept[member] > least
    for place in free:
        member = min(takers, key=lambda taker: (kept[taker], len(shares[taker]), taker))
        kept[member] += 1
        shares[member].append(place)


class BusyAssignor:
    """`share_out` as aiokafka wants it. holdings: tells what this member owns and what of it is busy."""

    name = "nimbusq"

    def __init__(self, holdings: Callable[[], tuple[Iterable[Place], Iterable[Place]]]) -> None:
        self._holdings = holdings

    def metadata(self, topics: Iterable[str]) -> Any:
        owned, busy = self._holdings()
        said = json.dumps({"owned": sorted(owned), "busy": sorted(busy)}).encode()
        return ConsumerProtocolMemberMetadata(0, sorted(topics), said)

    def assign(self, cluster: Any, members: Mapping[str, Any]) -> dict[str, Any]:
        wishes = {member: _wish(metadata) for member, metadata in members.items()}
        topics = {topic for wish in wishes.values() for topic in wish.topics}
        partitions = {topic: cluster.partitions_for_topic(topic) or () for topic in topics}
        return {
            member: ConsumerProtocolMemberAssignment(0, _by_topic(places), b"")
            for member, places in share_out(partitions, wishes).items()
        }

    def on_assignment(self, assignment: Any) -> None:
        """The consumer's rebalance listener hears of it."""


def _wish(metadata: Any) -> Wish:
    topics = frozenset(metadata.subscription)
    try:
        said = json.loads(metadata.user_data or b"{}")
        owned, busy = (
            frozenset((topic, int(n)) for topic, n in said.get(key, ())) for key in ("owned", "busy")
        )
    except (ValueError, TypeError, AttributeError):
        return Wish(topics=topics)
    return Wish(topics=topics, owned=owned, busy=busy)


def _by_topic(places: Iterable[Place]) -> list[tuple[str, list[int]]]:
    topics = defaultdict(list)
    for topic, number in places:
        topics[topic].append(number)
    return list(topics.items())
