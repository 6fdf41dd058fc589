"""One batch as the memory holds it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from nimbusq.driver import BatchRecord, BatchState, NewBatch

_ERRORS: Final = 50


@dataclass(slots=True, eq=False)
class Batch:
    """A set of members, of which some are pending: counting one twice changes nothing.

    known: every member ever added. mark: how many its producer has added, duplicates included.
    """

    new: NewBatch
    number: int
    created_at: float
    updated_at: float
    known: set[str] = field(default_factory=set)
    pending: dict[str, None] = field(default_factory=dict)
    mark: int = 0
    failed: int = 0
    errors: list[str] = field(default_factory=list)
    sealed: bool = False
    cancelled: bool = False
    finished_at: float | None = None

    def admit(self, member: str) -> None:
        if member not in self.known:
            self.known.add(member)
            self.pending[member] = None

    def count(self, record: BatchRecord) -> bool:
        """Record that a member has ended; False if it was not pending."""
        if record.member not in self.pending:
            return False
        del self.pending[record.member]
        if record.failed:
            self.failed += 1
            self.cancelled = self.cancelled or self.new.cancel_on_failure
            if record.error is not None and len(self.errors) < _ERRORS:
                self.errors.append(record.error)
        return True

    @property
    def due_to_finish(self) -> bool:
        return self.sealed and not self.pending and self.finished_at is None

    def view(self) -> BatchState:
        return BatchState(
            id=self.new.id,
            name=self.new.name,
            total=len(self.known),
            pending=len(self.pending),
            failed=self.failed,
            errors=tuple(self.errors),
            sealed=self.sealed,
            cancelled=self.cancelled,
            cancel_on_failure=self.new.cancel_on_failure,
            created_at=self.created_at,
            updated_at=self.updated_at,
            finished_at=self.finished_at,
            catch=self.new.catch,
        )
