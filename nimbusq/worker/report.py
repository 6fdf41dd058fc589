"""What a worker says of itself every few seconds: who it is, what it runs, what it has done."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from nimbusq.driver import WorkerReport, Workers
from nimbusq.errors import NimbusqError
from nimbusq.worker.pace import Pace

log = logging.getLogger("nimbusq.worker")

PERIOD: Final = 5.0


def installed_version() -> str:
    """nimbusq's own version."""
    try:
        return version("nimbusq")
    except PackageNotFoundError:
        return "0+unknown"


def host_and_pid() -> tuple[str, int]:
    return socket.gethostname(), os.getpid()


class Reporter:
    """Reports to the workers store until the worker leaves. A store that is away costs a log line, no more."""

    def __init__(self, workers: Workers, describe: Callable[[], WorkerReport]) -> None:
        self._workers = workers
        self._describe = describe
        self._pace = Pace()

    async def run(self, stop: asyncio.Event) -> None:
        """Report now and every 5 s, until `stop` is set."""
        while not stop.is_set():
            await self._report()
            try:
                async with asyncio.timeout(PERIOD):
                    await stop.wait()
            except TimeoutError:
                continue

    async def leave(self) -> None:
        """The last report, then goodbye."""
        await self._report()
        try:
            await self._workers.leave(self._describe().id)
        except NimbusqError as error:
            self._pace.complain(log, "the worker's leave could not be stored: %s", error)

    async def _report(self) -> None:
        try:
            await self._workers.report(self._describe())
            self._pace.reset()
        except NimbusqError as error:
            self._pace.complain(log, "the worker's report could not be stored: %s", error)
