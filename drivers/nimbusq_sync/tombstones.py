"""What is remembered of jobs that have just ended, so that a repeated call changes nothing."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

_KEEP_SECONDS: Final = 60.0
"""Outlasts the longest deadline of a call."""
_KEEP_AT_MOST: Final = 10_000
"""In memory a repetition follows at once, so that a busy minute need not be kept whole."""


class Tombstones:
    """Job id -> the token that ended it."""

    __slots__ = ("_graves",)

    def __init__(self) -> None:
        self._graves: OrderedDict[str, tuple[float, str]] = OrderedDict()

    def add(self, job_id: str, token: str, now: float) -> None:
        graves = self._graves
        graves[job_id] = (now, token)
        while len(graves) > _KEEP_AT_MOST or next(iter(graves.values()))[0] <= now - _KEEP_SECONDS:
            graves.popitem(last=False)

    def token(self, job_id: str, now: float) -> str | None:
        """The token that ended the job, or None where nothing is known."""
        grave = self._graves.get(job_id)
        return grave[1] if grave and grave[0] > now - _KEEP_SECONDS else None

    def forget(self, job_id: str) -> None:
        """The job lives again."""
        self._graves.pop(job_id, None)
