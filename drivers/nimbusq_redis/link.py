"""One way to the server: scripts by their SHA, a deadline on every call, the client's errors in our words."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from redis.exceptions import (
    AskError,
    ClusterDownError,
    ClusterError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisClusterException,
    RedisError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from nimbusq.errors import ConfigError, StoreError, StoreFull, StoreUnavailable
from nimbusq_redis.client import make_client
from nimbusq_redis.options import RedisOptions
from nimbusq_redis.scripts import Script, script

_GONE: Final = (
    RedisConnectionError,  # also LOADING and refused logins
    RedisTimeoutError,
    ReadOnlyError,
    ClusterDownError,  # also MASTERDOWN
    ClusterError,
    TryAgainError,
    AskError,  # also MOVED, when the client has given up following
    RedisClusterException,
    OSError,
)
"""Errors of a server that cannot serve now and may serve later, perhaps at another address."""
_GONE_CODES: Final = (
    "BUSY ",
    "NOREPLICAS ",
    "UNBLOCKED ",
    "LOADING ",
    "READONLY ",
    "MASTERDOWN ",
    "CLUSTERDOWN ",
)
_FULL_CODES: Final = ("OOM ", "MISCONF ")
"""MISCONF: the server could not write its append-only file or snapshot."""


class Link:
    """A client, and the scripts of one namespace. Opened and closed with its adapter."""

    def __init__(self, options: RedisOptions, root: str, *, testing: bool) -> None:
        self._options = options
        self._root = root
        self._testing = "1" if testing else "0"
        self._client: Any = None

    @property
    def client(self) -> Any:
        """The redis-py client of an open link."""
        if self._client is None:
            raise StoreUnavailable(
                "the redis driver is not open: enter the manager, or await adapter.open()."
            )
        return self._client

    def key(self, name: str) -> str:
        """The key of that name in this namespace."""
        return self._root + name

    async def open(self) -> None:
        """Connect, and see that somebody answers. Raises StoreUnavailable."""
        if self._client is None:
            self._client = make_client(self._options)
            try:
                await self.run("now")
            except BaseException:
                await self.aclose()
                raise

    async def aclose(self) -> None:
        """Close all connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def run(self, name: str, *args: Any, seconds: float | None = None) -> Any:
        """Run a script of this namespace: one round trip, or two on a server that does not know it yet."""
        text = script(name)
        tail = (1, self._root, self._testing, *args)
        async with self._answering(seconds):
            try:
                return await self.client.execute_command("EVALSHA", text.sha, *tail)
            except NoScriptError:
                return await self.client.execute_command("EVAL", text.text, *tail)

    async def run_replicated(self, name: str, *args: Any) -> Any:
        """Run a script, then wait until as many replicas as configured have what it wrote, in one round trip.

        Raises StoreUnavailable when they do not in time: it is written, and may be written again by the same call.
        """
        tail = (1, self._root, self._testing, *args)
        async with self._answering(None):
            reply, copies = await self._piped(script(name), tail)
        if copies < self._options.replicas:
            raise StoreUnavailable(
                f"only {copies} of {self._options.replicas} replicas have confirmed the jobs in time: they are "
                "stored on the master. Send them again to be sure, or look at the replicas."
            )
        return reply

    async def _piped(self, text: Script, tail: Sequence[Any]) -> tuple[Any, int]:
        milliseconds = int(self._options.timeout * 800)  # inside the call's own deadline
        wait = ("WAIT", self._options.replicas, milliseconds)
        answers = await self._pipe([("EVALSHA", text.sha, *tail), wait])
        if isinstance(answers[0], NoScriptError):
            answers = await self._pipe([("EVAL", text.text, *tail), wait])
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return answers[0], answers[1]

    async def _pipe(self, commands: Sequence[tuple[Any, ...]]) -> Sequence[Any]:
        async with self.client.pipeline(transaction=False) as pipeline:
            for command in commands:
                pipeline.execute_command(*command)
            answers: Sequence[Any] = await pipeline.execute(raise_on_error=False)
            return answers

    async def command(self, *args: Any, seconds: float | None = None) -> Any:
        """A plain command."""
        async with self._answering(seconds):
            return await self.client.execute_command(*args)

    @asynccontextmanager
    async def _answering(self, seconds: float | None) -> AsyncIterator[None]:
        """Give the call its deadline, and its errors our names.

        A call that is cut off closes its connection (redis-py does), so that nobody reads its late reply.
        """
        limit = self._options.timeout if seconds is None else seconds
        try:
            async with asyncio.timeout(limit):
                yield
        except TimeoutError as error:
            raise StoreUnavailable(f"redis did not answer within {limit:g} s.") from error
        except _GONE as error:
            await self._forget_connections()
            raise StoreUnavailable(f"redis cannot be used now: {_words(error)}") from error
        except OutOfMemoryError as error:
            raise StoreFull(f"redis is out of memory: {_words(error)}") from error
        except RedisError as error:
            raise await self._by_code(error) from error

    async def _by_code(self, error: RedisError) -> StoreError | ConfigError:
        text = str(error)
        if text.startswith(_FULL_CODES):
            return StoreFull(f"redis cannot store: {_words(error)}")
        if text.startswith(_GONE_CODES):
            await self._forget_connections()
            return StoreUnavailable(f"redis cannot be used now: {_words(error)}")
        return StoreError(f"redis refused a call: {_words(error)}")

    async def _forget_connections(self) -> None:
        """Connect afresh next time: the name may lead to another server by then."""
        pool = getattr(self._client, "connection_pool", None)
        if pool is not None:
            await pool.disconnect(inuse_connections=False)


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
