"""What a test needs of a driver; where a driver lacks it, the test asserts that the driver says so.

Nothing is skipped: a driver that cannot do a thing says so by its capability record, or by a store that is
None, and from these core refuses the dispatch by name.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from nimbusq.driver import Capabilities, Stores, lacking
from nimbusq.envelope import ChainRest, Envelope, Overlap, Rate, Unique
from nimbusq.testing.suite.hands import Hands

Suite = TypeVar("Suite")
Test = Callable[[Suite, Hands], Awaitable[None]]

_REFUSED: Final[dict[str, dict[str, Any]]] = {
    "unique jobs": {"unique": Unique(key="k")},
    "jobs without overlap": {"overlap": Overlap(key="k")},
    "rates per key": {"rate": Rate(key="k", per_second=1)},
    "batches": {"batch_id": "b"},
    "chains": {"chain": ChainRest(id="c")},
    "priorities": {"priority": 1},
}
"""Needs that a dispatch can state: how an envelope states them."""

_CAPABLE: Final[dict[str, Callable[[Capabilities], bool]]] = {
    "timed leases": lambda c: c.lease == "timed",
    "fencing": lambda c: c.fenced,
    "atomic steps": lambda c: c.atomic,
    "cancelling": lambda c: c.cancellable,
}
"""Needs that no dispatch states: how the record shows them."""


def needs(*names: str) -> Callable[[Test[Suite]], Test[Suite]]:
    """Run the test where the driver has all that is named; else assert that it is refused, or declared.

    A name is a need of `nimbusq.driver.lacking`, one of the capabilities above, or a store's field name.
    """

    def decorate(test: Test[Suite]) -> Test[Suite]:
        @functools.wraps(test)
        async def checked(self: Suite, hands: Hands) -> None:
            missing = [name for name in names if not _has(hands, name)]
            if not missing:
                await test(self, hands)
            for name in missing:
                _assert_said(hands, name)

        return checked

    return decorate


def _has(hands: Hands, name: str) -> bool:
    capabilities, stores = hands.adapter.capabilities, hands.adapter.stores
    if name in Stores.__dataclass_fields__ and name != "batches":
        return getattr(stores, name) is not None
    if name in _CAPABLE:
        return _CAPABLE[name](capabilities)
    return capabilities.priorities if name == "priorities" else capabilities.atomic


def _assert_said(hands: Hands, name: str) -> None:
    """The negative twin."""
    capabilities, stores = hands.adapter.capabilities, hands.adapter.stores
    if name in _REFUSED:
        refused = lacking(Envelope(id="i", name="Probe", queue="q", **_REFUSED[name]), capabilities)
        assert [need.name for need in refused] == [name]
        assert refused[0].remedy
    if name in {"batches", "limiter", "locker"}:
        assert getattr(stores, name) is None
