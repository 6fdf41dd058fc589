"""Sharing out partitions: evenly in each topic, with few moves, and of busy ones last."""

from __future__ import annotations

from collections import Counter
from typing import Any

from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata
from hypothesis import given
from hypothesis import strategies as st

from nimbusq_kafka.assignor import BusyAssignor, Place, Wish, share_out

TOPICS = ("a", "b", "c")
places = st.frozensets(st.tuples(st.sampled_from(TOPICS), st.integers(0, 6)))
wishes = st.dictionaries(
    st.sampled_from(["m1", "m2", "m3", "m4"]),
    st.builds(
        lambda topics, owned, busy: Wish(topics=topics, owned=owned, busy=busy & owned),
        topics=st.frozensets(st.sampled_from(TOPICS)),
        owned=places,
        busy=places,
    ),
)
partitions = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 6).map(range))


@given(partitions, wishes)
def test_each_partition_goes_to_one_subscriber_and_topics_are_even(
    given_partitions: dict[str, range], given_wishes: dict[str, Wish]
) -> None:
    shares = share_out(given_partitions, given_wishes)
    dealt = Counter(place for share in shares.values() for place in share)
    for topic, numbers in given_partitions.items():
        takers = [member for member, wish in given_wishes.items() if topic in wish.topics]
        assert {number for (name, number) in dealt if name == topic} == (set(numbers) if takers else set())
        loads = [len([one for one in shares[member] if one[0] == topic]) for member in takers]
        assert max(loads, default=0) - min(loads, default=0) <= 1
    assert set(dealt.values()) <= {1}
    for member, share in shares.items():
        assert {topic for topic, _ in share} <= given_wishes[member].topics


@given(partitions, wishes)
def test_dealing_again_moves_nothing(
    given_partitions: dict[str, range], given_wishes: dict[str, Wish]
) -> None:
    first = share_out(given_partitions, given_wishes)
    settled = {
        member: Wish(topics=wish.topics, owned=frozenset(first[member]))
        for member, wish in given_wishes.items()
    }
    again = share_out(given_partitions, settled)
    assert {member: set(share) for member, share in again.items()} == {
        member: set(share) for member, share in first.items()
    }


def owner(topic: str, count: int) -> frozenset[Place]:
    return frozenset((topic, number) for number in range(count))


def test_a_newcomer_gets_what_is_idle() -> None:
    topics = frozenset("a")
    shares = share_out(
        {"a": range(4)},
        {
            "new": Wish(topics=topics),
            "old": Wish(topics=topics, owned=owner("a", 4), busy=frozenset({("a", 1), ("a", 3)})),
        },
    )
    assert shares == {"old": [("a", 1), ("a", 3)], "new": [("a", 0), ("a", 2)]}


def test_a_single_partition_stays_where_it_is() -> None:
    topics = frozenset("a")
    shares = share_out(
        {"a": range(1)}, {"0": Wish(topics=topics), "z": Wish(topics=topics, owned=owner("a", 1))}
    )
    assert shares == {"0": [], "z": [("a", 0)]}


def test_topics_of_one_partition_are_spread_over_the_members() -> None:
    wish = Wish(topics=frozenset("abc"))
    shares = share_out({"a": range(1), "b": range(1), "c": range(1)}, {"m1": wish, "m2": wish, "m3": wish})
    assert sorted(len(share) for share in shares.values()) == [1, 1, 1]


class Cluster:
    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return {0, 1} if topic == "a" else None


def test_members_that_say_nothing_or_nonsense_are_dealt_in() -> None:
    """Another client in the group, or a newer nimbusq."""
    said = (b"", b"\xff", b"[1]", b'{"owned":[["a"]]}', b'{"owned":7}', None)
    members: dict[str, Any] = {
        f"m{n}": ConsumerProtocolMemberMetadata(0, ["a", "unknown"], data) for n, data in enumerate(said)
    }
    dealt = BusyAssignor(lambda: ([], [])).assign(Cluster(), members)
    found = [(topic, numbers) for one in dealt.values() for topic, numbers in one.assignment]
    assert sorted(number for _, numbers in found for number in numbers) == [0, 1]
    assert {topic for topic, _ in found} == {"a"}


def test_what_a_member_says_comes_back() -> None:
    assignor = BusyAssignor(lambda: ([("a", 0), ("a", 1)], [("a", 1)]))
    metadata = assignor.metadata({"a"})
    decoded = ConsumerProtocolMemberMetadata.decode(metadata.encode())
    other = ConsumerProtocolMemberMetadata(0, ["a"], b"")
    dealt = assignor.assign(Cluster(), {"other": other, "me": decoded})
    assert {member: one.assignment for member, one in dealt.items()} == {
        "me": [("a", [1])],
        "other": [("a", [0])],
    }
