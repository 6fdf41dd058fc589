"""Which adapter carries a job: the carrier where it can meet every need, else the store beside it.

Routing happens at push, by need: a plain job travels through the carrier, a job with a unique key, an overlap
key, a batch, a chain, a long delay … is kept, claimed and settled by the store, itself a full driver.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nimbusq.driver import Adapter, Stores, lacking
from nimbusq.envelope import Envelope
from nimbusq.errors import UnsupportedByDriver


@dataclass(frozen=True, slots=True)
class Route:
    """A carrier, and the store beside it where there is one."""

    carrier: Adapter
    store: Adapter | None = None

    @property
    def adapters(self) -> tuple[Adapter, ...]:
        return (self.carrier,) if self.store is None else (self.carrier, self.store)

    @property
    def stores(self) -> Stores:
        """The stores that count: those of the store beside the carrier, else the carrier's own."""
        return (self.store or self.carrier).stores

    def of(self, envelope: Envelope, *, tx: bool = False) -> Adapter:
        """The adapter for this job. Raises UnsupportedByDriver with the remedy when there is none."""
        needs = lacking(envelope, self.carrier.capabilities, tx=tx)
        if not needs:
            return self.carrier
        if self.store is not None:
            if not (unmet := lacking(envelope, self.store.capabilities, tx=tx)):
                return self.store
            needs = unmet
        driver = (self.store or self.carrier).capabilities.driver
        raise UnsupportedByDriver(driver, needs[0].name, needs[0].remedy)

    def split(self, envelopes: Sequence[Envelope], *, tx: bool = False) -> list[tuple[Adapter, list[int]]]:
        """The positions of the envelopes by adapter, in order."""
        if self.store is None and not tx:
            for envelope in envelopes:
                self.of(envelope)
            return [(self.carrier, list(range(len(envelopes))))]
        groups: dict[int, tuple[Adapter, list[int]]] = {}
        for position, envelope in enumerate(envelopes):
            adapter = self.of(envelope, tx=tx)
            groups.setdefault(id(adapter), (adapter, []))[1].append(position)
        return list(groups.values())
