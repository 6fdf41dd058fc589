"""Questions and answers on one connection, with nothing between them and the socket but the event loop.

redis-py connects: addresses, TLS, sentinels, passwords and databases are its business. Its reading and writing go
through asyncio's streams, a buffer and a dozen calls for each answer, which a call waits for twice a job. So the
transport of a connection that is ready is taken over: what arrives goes to hiredis, and its answers to who asked.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import hiredis
from redis.asyncio.connection import DefaultParser
from redis.exceptions import ConnectionError as RedisConnectionError

_INCOMPLETE: Final = object()


class Exchange(asyncio.Protocol):
    """A connection of redis-py's for one caller at a time. Owned by the server that took it from the pool."""

    def __init__(self, connection: Any) -> None:
        """connection: connected, logged in, and with no answer under way."""
        self.connection = connection
        self.lost = False
        """The connection has ended, as far as the event loop has been told."""
        self._transport: asyncio.Transport = connection._writer.transport  # redis-py has no public way to it
        self._stream = self._transport.get_protocol()
        self._reader = hiredis.Reader(replyError=DefaultParser.parse_error, notEnoughData=_INCOMPLETE)
        self._waiting: asyncio.Future[list[Any]] | None = None
        self._answers: list[Any] = []
        self._wanted = 0
        self._transport.set_protocol(self)

    def ask(self, packed: bytes, answers: int = 1) -> asyncio.Future[list[Any]]:
        """Send packed commands; as many answers as they have, where an error is an answer, too.

        Raises redis-py's ConnectionError when the connection ends. Whoever does not wait for the end closes it.
        """
        self._answers, self._wanted = [], answers
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(packed)
        return self._waiting

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        while (answer := self._reader.gets()) is not _INCOMPLETE:
            if self._waiting is None:
                self.lost = True  # nobody has asked: it would be taken for the next caller's answer
                self._transport.abort()
                return
            self._answers.append(answer)
            if len(self._answers) == self._wanted:
                waiting, self._waiting = self._waiting, None
                if not waiting.done():
                    waiting.set_result(self._answers)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(
                RedisConnectionError(f"the connection has ended{f': {exc}' if exc else ''}")
            )
        self._stream.connection_lost(exc)  # redis-py waits for it when it closes the connection
