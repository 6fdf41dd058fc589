"""Which adapter carries a job: the carrier where it can meet every need, else the store beside it.

Routing happens at push, by need: a plain job travels through the carrier, a job with a unique key, an overlap
key, a batch, a chain, a long delay … is kept, claimed and settled by the store, itself a full driver.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from nimbusq.driver import Adapter, Capabilities, Need, Stores, lacking
from nimbusq.driver.capabilities import lacks_nothing
from nimbusq.envelope import Envelope
from nimbusq.errors import ConfigError, UnsupportedByDriver


@dataclass(frozen=True)  # without slots, for what is worked out once
class Route:
    """A carrier, and the store beside it where there is one. Raises ConfigError for a store that is none.

    With a store, whatever ties jobs together lives there, also where the carrier could do it itself: two stores
    of unique keys would not see each other.
    """

    carrier: Adapter
    store: Adapter | None = None

    def __post_init__(self) -> None:
        if self.store is None:
            return
        store, carrier = self.store.capabilities, self.carrier.capabilities
        if not store.atomic:
            raise ConfigError(
                f"the {store.driver} driver cannot be a store beside another: it cannot tie jobs together. "
                "Set QUEUE_STORE_URL to a redis or database URL."
            )
        if carrier.inline:
            raise ConfigError(
                f"the {carrier.driver} driver runs jobs as they are sent, so a store beside it would keep jobs that "
                "nobody runs. Unset QUEUE_STORE_URL."
            )

    @property
    def adapters(self) -> tuple[Adapter, ...]:
        return (self.carrier,) if self.store is None else (self.carrier, self.store)

    @property
    def stores(self) -> Stores:
        """The stores that count: those of the store beside the carrier, else the carrier's own."""
        return (self.store or self.carrier).stores

    def of(self, envelope: Envelope, *, tx: bool = False) -> Adapter:
        """The adapter for this job. Raises UnsupportedByDriver with the remedy when there is none."""
        if self.store is None:
            return _able(self.carrier, lacking(envelope, self.carrier.capabilities, tx=tx))
        if self._is_plain(envelope, tx=tx):
            return self.carrier
        return _able(self.store, lacking(envelope, self.store.capabilities, tx=tx))

    def takes_all(self, *, tx: bool = False) -> bool:
        """Every job goes to the carrier, whatever it needs: none has to be looked at."""
        return self.store is None and lacks_nothing(self.carrier.capabilities, tx=tx)

    def _is_plain(self, envelope: Envelope, *, tx: bool) -> bool:
        """The carrier can do all that is asked, and nothing of it is the store's business."""
        exact = self.carrier.capabilities.exact_delay
        if exact is not None and envelope.delay > exact:
            return False
        return not lacking(envelope, self._alone, tx=tx)

    @functools.cached_property
    def _alone(self) -> Capabilities:
        """What the carrier may do beside a store."""
        return replace(self.carrier.capabilities, atomic=False, transactional=False)

    def keeps_records(self, driver: str) -> bool:
        """Whether the adapter of that name keeps the records of its jobs itself, so that it knows a live job from
        one that is forgotten. Beside a store the carrier does not."""
        return self.store is None or self.store.capabilities.driver == driver

    def can_cancel(self, driver: str) -> bool:
        """Whether the adapter of that name takes back a job by its id."""
        named = [adapter.capabilities for adapter in self.adapters if adapter.capabilities.driver == driver]
        return all(capabilities.cancellable for capabilities in named)


def _able(adapter: Adapter, needs: Sequence[Need]) -> Adapter:
    if needs:
        raise UnsupportedByDriver(adapter.capabilities.driver, needs[0].name, needs[0].remedy)
    return adapter
