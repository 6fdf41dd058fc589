"""A peer's own process: `python -m benchmarks.side TARGET ACTION …`; what it measured leaves as a line of JSON."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import time
from collections.abc import Awaitable, Callable
from typing import Final

import uvloop

from benchmarks.peer import Peer, Place
from benchmarks.tally import shared

AT_ONCE: Final = 64
"""Tasks of the sending mode of that name."""
DAY: Final = 86_400.0


async def send(peer: Peer, numbers: range, mode: str, kind: str) -> dict[str, float]:
    """Send jobs in one of the MODES; how many a second, and microseconds of this process's CPU for each.

    Nothing for a mode that the peer does not offer.
    """
    sending = MODES[mode]
    await peer.connect()
    try:
        cpu, began = time.process_time(), time.monotonic()
        await sending(peer, kind, numbers)
        took, used = time.monotonic() - began, time.process_time() - cpu
    except NotImplementedError:
        return {}
    finally:
        await peer.aclose()
    return {"rate": len(numbers) / took, "cpu": used / len(numbers) * 1e6}


async def _one_by_one(peer: Peer, kind: str, numbers: range) -> None:
    for i in numbers:
        await peer.send(kind, i)


async def _at_once(peer: Peer, kind: str, numbers: range) -> None:
    if peer.blocking:
        raise NotImplementedError
    waiting = iter(numbers)

    async def sender() -> None:
        for i in waiting:
            await peer.send(kind, i)

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(sender())


async def _in_bulk(peer: Peer, kind: str, numbers: range) -> None:
    await peer.send_many(kind, numbers)


async def _delayed(peer: Peer, _: str, numbers: range) -> None:
    await peer.send_delayed(numbers, DAY)


async def _quickest(peer: Peer, kind: str, numbers: range) -> None:
    way = _in_bulk if peer.bulk else _one_by_one if peer.blocking else _at_once
    await way(peer, kind, numbers)


MODES: Final[dict[str, Callable[[Peer, str, range], Awaitable[None]]]] = {
    "one": _one_by_one,
    "at once": _at_once,
    "bulk": _in_bulk,
    "delayed": _delayed,
    "quickest": _quickest,
}


async def paced(peer: Peer, numbers: range, spacing: float) -> None:
    """Send a no-op job every `spacing` seconds and note when."""
    await peer.connect()
    await _pace(peer, numbers, spacing)
    await peer.aclose()


async def alone(peer: Peer, concurrency: int, numbers: range, spacing: float) -> None:
    """`paced`, with the worker in this very process, which then stays until it is killed."""
    worker = asyncio.create_task(peer.work(concurrency))
    await asyncio.sleep(1.0)
    await peer.connect()
    await _pace(peer, numbers, spacing)
    await worker


async def _pace(peer: Peer, numbers: range, spacing: float) -> None:
    sent = shared().sent
    due = time.monotonic()
    for i in numbers:
        due = max(due + spacing, time.monotonic())
        await asyncio.sleep(due - time.monotonic())
        sent[i] = time.monotonic()
        await peer.send("noop", i)


def load(target: str, place: Place) -> Peer:
    """The peer that a catalogue entry points to."""
    module, _, name = target.partition(":")
    peer: type[Peer] = getattr(importlib.import_module(f"benchmarks.peers.{module}"), name)
    return peer(place)


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.side")
    parser.add_argument("target")
    parser.add_argument("action", choices=["install", "send", "paced", "alone", "work"])
    parser.add_argument("--driver", required=True)
    parser.add_argument("--url", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=0)
    parser.add_argument("--mode", choices=list(MODES), default="quickest")
    parser.add_argument("--kind", default="noop")
    parser.add_argument("--spacing", type=float, default=0.01)
    parser.add_argument("--concurrency", type=int, default=10)
    given = parser.parse_args()
    peer = load(given.target, Place(driver=given.driver, url=given.url, name=given.name))
    numbers = range(given.first, given.first + given.jobs)
    match given.action:
        case "install":
            uvloop.run(peer.install())
        case "send":
            print(json.dumps(uvloop.run(send(peer, numbers, given.mode, given.kind))))
        case "paced":
            uvloop.run(paced(peer, numbers, given.spacing))
        case "alone":
            uvloop.run(alone(peer, given.concurrency, numbers, given.spacing))
        case _:
            uvloop.run(peer.work(given.concurrency))


if __name__ == "__main__":
    main()
