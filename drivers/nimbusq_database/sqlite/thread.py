"""A thread that owns one sqlite3 connection.

The asyncio side pays one hop there and back for a whole transaction, not one for each statement: the body of
a transaction is a coroutine whose statements never suspend, so the thread runs it from first line to last.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

T = TypeVar("T")
Task = Callable[[sqlite3.Connection], T]


@dataclass(slots=True, eq=False)
class _Order(Generic[T]):
    """A task on its way to the thread. Its future belongs to `loop` and is touched only there."""

    task: Task[T]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[T]

    def run(self, connection: sqlite3.Connection) -> None:
        if self.future.cancelled():  # nobody waits any more and nothing was begun
            return
        try:
            answer = self.task(connection)
        except BaseException as error:  # noqa: BLE001  # it is raised where the caller waits
            self._resolve(self._fail, error)
        else:
            self._resolve(self._answer, answer)

    def _resolve(self, how: Callable[[Any], None], value: object) -> None:
        with suppress(RuntimeError):  # the loop was closed meanwhile, with whoever waited
            self.loop.call_soon_threadsafe(how, value)

    def _answer(self, answer: T) -> None:
        if not self.future.done():
            self.future.set_result(answer)

    def _fail(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class ConnectionThread:
    """Runs tasks one after the other on its connection, which is opened by the first.

    A daemon: an interpreter that ends without `close` is not kept waiting, and SQLite's journal makes an
    interrupted transaction undone.
    """

    def __init__(self, name: str, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connect = connect
        self._orders: SimpleQueue[_Order[Any] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    async def run(self, task: Task[T]) -> T:
        """The task's answer. Cancelling stops a task that has not begun; one that has begun ends its work."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._orders.put(_Order(task, loop, future))
        return await future

    async def close(self) -> None:
        """Close the connection after what was ordered before, and wait for the thread's end."""
        self._orders.put(None)
        await asyncio.to_thread(self._thread.join)

    def _work(self) -> None:
        connection: sqlite3.Connection | None = None
        while order := self._orders.get():
            try:
                connection = connection or self._connect()
            except sqlite3.Error as error:
                order._resolve(order._fail, error)
                continue
            order.run(connection)
            del order  # or the last answer stays referred to while the thread waits
        if connection:
            connection.close()
