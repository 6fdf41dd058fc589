"""Batches as a store keeps them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from nimbusq.driver.claims import Pushed
from nimbusq.envelope import Envelope


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRecord:
    """`member` of `batch_id` has ended. `error` is kept (the first 50 of a batch) where it failed."""

    batch_id: str
    member: str
    failed: bool
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewBatch:
    """A batch to create, open. Callbacks are whole envelopes, pushed by the step that ends the batch.

    `catch` is a template: core pushes a copy of it for each failed member, with that member's settlement.
    """

    id: str
    name: str = ""
    then: Envelope | None = None
    catch: Envelope | None = None
    finally_: Envelope | None = None
    cancel_on_failure: bool = False
    meta: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchState:
    """A batch's stored progress. Times are epoch seconds of the store's clock.

    total counts added members; pending those that have not ended; failed those that failed, were cancelled or
    expired. errors: the first 50. sealed: no more members come from its producer. A batch that was left open
    is shown as incomplete.
    """

    id: str
    name: str
    total: int
    pending: int
    failed: int
    errors: tuple[str, ...] = ()
    sealed: bool = False
    cancelled: bool = False
    cancel_on_failure: bool = False
    created_at: float = 0.0
    updated_at: float = 0.0
    finished_at: float | None = None
    catch: Envelope | None = field(default=None, repr=False, compare=False)

    @property
    def processed(self) -> int:
        """Members that have ended."""
        return self.total - self.pending

    @property
    def progress(self) -> float:
        """From 0.0 to 1.0."""
        return self.processed / self.total if self.total else float(self.finished_at is not None)

    @property
    def finished(self) -> bool:
        """All members have ended and the batch is sealed."""
        return self.finished_at is not None


@dataclass(frozen=True, slots=True)
class BatchUpdate:
    """counted: False when this member was recorded before. finished: True for exactly one caller."""

    state: BatchState
    counted: bool = True
    finished: bool = False


@dataclass(frozen=True, slots=True)
class Added:
    """The batch's mark (members added by its producer so far), and the answers to the pushed envelopes."""

    mark: int
    pushed: Sequence[Pushed] = ()


class BatchStore(Protocol):
    """Progress of batches: a set of pending members, so that recording one twice changes nothing.

    A record is kept for 7 days after its last update.
    """

    async def create(self, batch: NewBatch) -> None:
        """Store the batch, open. The same id again changes nothing."""
        ...

    async def add(self, batch_id: str, envelopes: Sequence[Envelope], *, offset: int | None = None) -> Added:
        """Push members and add them to the pending set, in one step.

        `offset` is how many members the producer has added before; below the stored mark nothing is added and
        the mark is returned, so that a producer whose reply was lost can continue, also where it had sealed the
        batch already. None adds from inside a job:
        members that the batch has or had are left alone. Raises BatchNotFound, and InvalidOption where the
        batch has finished or is sealed against its producer.
        """
        ...

    async def seal(self, batch_id: str) -> BatchUpdate:
        """No more members come from the producer; a batch with none pending finishes here."""
        ...

    async def record(self, record: BatchRecord) -> BatchUpdate:
        """Count one member by hand, outside a settlement; the last one of a sealed batch finishes it."""
        ...

    async def cancel(self, batch_id: str) -> BatchUpdate:
        """Mark as cancelled: members that have not started are handed out with `Ending.CANCELLED`."""
        ...

    async def find(self, batch_id: str) -> BatchState | None: ...

    async def members(
        self, batch_id: str, *, cursor: str = "", limit: int = 500
    ) -> tuple[Sequence[str], str]:
        """Pending member ids, and the cursor of the next page ("" at the end)."""
        ...

    async def list(self, *, cursor: str = "", limit: int = 50) -> tuple[Sequence[BatchState], str]:
        """Newest first, and the cursor of the next page ("" at the end)."""
        ...
