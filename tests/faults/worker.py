"""A worker process of the fault tests.

    python worker.py QUEUE... [--concurrency N] [--lease S] [--grace S] [--nursery N] [--broken 1]

The queue's address comes from QUEUE_DRIVER and NIMBUSQ_PREFIX, the module with the jobs from APP, the file for its
notes from LEDGER. TESTING=1 keeps the store's audit. SIGTERM ends it in good order. A nursery keeps N workers at
work, forks of itself, whoever of them dies: a new one costs no start of an interpreter.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import importlib
import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from nimbusq import Manager, Observer, Settings, Worker
from nimbusq.driver import Claim, Lost
from nimbusq.loading import load_adapter
from tests.faults.ledger import Ledger, ledger


class Notes(Observer):
    """What the worker itself believes to have happened."""

    def __init__(self, book: Ledger) -> None:
        self._book = book

    def processed(self, claim: Claim, duration: float, error: str | None) -> None:
        self._book.note("processed", id=claim.id, attempt=claim.attempt, error=error)

    def cancelled(self, claim: Claim, reason: str) -> None:
        self._book.note("processed", id=claim.id, attempt=claim.attempt, error=reason)

    def retried(self, claim: Claim, delay: float, error: str) -> None:
        self._book.note("again", id=claim.id, attempt=claim.attempt, error=error)

    def released(self, claim: Claim, delay: float) -> None:
        self._book.note("again", id=claim.id, attempt=claim.attempt)

    def lease_lost(self, claim: Claim) -> None:
        self._book.note("lease_lost", id=claim.id, attempt=claim.attempt)

    def reclaimed(self, lost: Sequence[Lost]) -> None:
        for one in lost:
            self._book.note("reclaimed", id=one.id, attempt=one.attempt)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("queues", nargs="+")
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--lease", type=float, default=2.0)
    parser.add_argument("--grace", type=float, default=5.0)
    parser.add_argument("--nursery", type=int, default=0)
    parser.add_argument("--broken", type=int, default=0, help="the driver has a bug: every claim raises")
    return parser.parse_args()


def open_manager(observers: Sequence[Observer] = ()) -> Manager:
    """The manager that the environment asks for, with an audit in the store where it says TESTING."""
    settings = Settings()
    testing = os.environ.get("TESTING") == "1"
    adapter: Any = load_adapter(settings.url, settings.for_driver(settings.url, testing=testing))
    store = settings.store and load_adapter(
        settings.store, settings.for_driver(settings.store, beside=True, testing=testing)
    )
    return Manager(adapter, store=store, settings=settings, observers=observers)


async def main(args: argparse.Namespace) -> None:
    book = ledger()
    async with open_manager([Notes(book)]) as manager:
        if args.broken:
            setattr(manager.adapter, "claim", _broken)  # noqa: B010  # an adapter's method is not to be assigned
        worker = Worker(
            manager, args.queues, concurrency=args.concurrency, lease=args.lease, grace=args.grace
        )
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
        book.note("up", worker=worker.id)
        await worker.run()
        book.note("down", worker=worker.id, abandoned=worker.abandoned)
        if worker.abandoned:  # handlers that ignore their cancellation would keep the loop from ending
            sys.stderr.flush()
            os._exit(1)


async def _broken(_: object) -> None:
    raise RuntimeError("a bug in the driver")


def nurse(args: argparse.Namespace) -> None:
    """Keep `args.nursery` workers at work until SIGTERM, which is passed on."""
    children: set[int] = set()
    stopping = False

    def stop(_number: int, _frame: FrameType | None) -> None:
        nonlocal stopping
        stopping = True
        for child in children:
            os.kill(child, signal.SIGTERM)

    signal.signal(signal.SIGTERM, stop)
    gc.freeze()  # what the children share with this process stays shared
    while children or not stopping:
        while not stopping and len(children) < args.nursery:
            signal.pthread_sigmask(
                signal.SIG_BLOCK, {signal.SIGTERM}
            )  # none may hit a child with our handler
            if (child := os.fork()) == 0:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
                code = 1
                try:
                    asyncio.run(main(args))
                    code = 0
                finally:
                    logging.shutdown()
                    sys.stderr.flush()
                    os._exit(code)
            children.add(child)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        try:
            ended, _ = os.wait()
        except (InterruptedError, ChildProcessError):
            continue
        children.discard(ended)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(process)d %(relativeCreated)d %(name)s %(message)s")
    app = Path(os.environ["APP"])
    sys.path.insert(0, str(app.parent))
    importlib.import_module(app.stem)
    options = arguments()
    if options.nursery:
        nurse(options)
    else:
        asyncio.run(main(options))
