"""A table whose entries end by themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Generic, TypeVar

V = TypeVar("V")

_PRUNE_FROM: Final = 1024


class Expiring(Generic[V]):
    """key -> value until a time on the store's clock.

    Expired entries are invisible at once; their memory goes each time the table has doubled, so that pruning
    costs a constant per entry and forgotten keys do not pile up.
    """

    __slots__ = ("_entries", "_prune_at")

    def __init__(self) -> None:
        self._entries: dict[str, tuple[float, V]] = {}
        self._prune_at = _PRUNE_FROM

    def get(self, key: str, now: float) -> V | None:
        entry = self._entries.get(key)
        return entry[1] if entry and entry[0] > now else None

    def put(self, key: str, value: V, until: float, now: float) -> None:
        """Insert or replace; a replaced entry keeps its place in `values`."""
        if len(self._entries) >= self._prune_at:
            self._entries = {key: entry for key, entry in self._entries.items() if entry[0] > now}
            self._prune_at = max(_PRUNE_FROM, 2 * len(self._entries))
        self._entries[key] = (until, value)

    def drop(self, key: str) -> None:
        self._entries.pop(key, None)

    def values(self, now: float) -> Iterator[V]:
        """Newest key first."""
        return (value for until, value in reversed(self._entries.values()) if until > now)
