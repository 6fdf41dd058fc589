"""The interface that nimbusq and its peers stand behind. A peer's own library is imported in its own file only."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.tally import hit

NAP: Final = 0.05
"""Seconds that a job of kind "nap" sleeps, as one that waits for something would."""
CHUNK: Final = 1000
"""Jobs of one bulk call, unless the peer chunks by itself."""


async def noop(i: int) -> None:
    hit(i)


async def nap(i: int) -> None:
    hit(i)
    await asyncio.sleep(NAP)


KINDS: Final[dict[str, Callable[[int], Any]]] = {"noop": noop, "nap": nap}
"""The jobs that every peer knows by these names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where one measurement happens: a server's address, and a name that no other measurement has used."""

    driver: str
    url: str
    name: str

    @property
    def file(self) -> Path:
        """The file of a ``sqlite:///`` address."""
        return Path(self.url.removeprefix("sqlite:///"))


class Peer:
    """One queue library at one place.

    A measurement calls `install` once, in a process of its own, then `connect`, the sending calls and `aclose` in
    a second, and `work` in a third, which is killed in the end.
    """

    blocking = False
    """Its sending calls are synchronous."""

    def __init__(self, place: Place) -> None:
        self.place = place

    async def install(self) -> None:
        """Create tables, topics or queues."""

    async def connect(self) -> None:
        """Get ready to send."""

    async def aclose(self) -> None:
        """End what `connect` began."""

    async def send(self, kind: str, i: int) -> None:
        """Send job number `i` of a kind of KINDS."""
        raise NotImplementedError

    async def send_many(self, kind: str, numbers: range) -> None:
        """Send these jobs with as few calls as the library allows. Raises NotImplementedError if it has no such."""
        raise NotImplementedError

    async def send_delayed(self, numbers: range, seconds: float) -> None:
        """Send no-op jobs that are due in `seconds`. Raises NotImplementedError if it cannot."""
        raise NotImplementedError

    @property
    def bulk(self) -> bool:
        """It has a call that sends many jobs."""
        return type(self).send_many is not Peer.send_many

    async def work(self, concurrency: int) -> None:
        """Run jobs, `concurrency` at once, until the process ends."""
        raise NotImplementedError


def chunks(numbers: range) -> list[range]:
    """`numbers` in parts of CHUNK."""
    return [numbers[start : start + CHUNK] for start in range(0, len(numbers), CHUNK)]


async def forever() -> None:
    """For workers that run in the background."""
    await asyncio.Event().wait()
