"""One way to the server: scripts by their SHA, a deadline on every call, the client's errors in our words."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any, Final, TypeVar

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

from nimbusq.driver import Deadlines
from nimbusq.errors import ConfigError, StoreError, StoreFull, StoreUnavailable
from nimbusq_redis.client import Server, make_server
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

_ERRORS: Final = (RedisError, RedisClusterException, OSError)  # a TimeoutError is an OSError
T = TypeVar("T")


class Link:
    """A client, and the scripts of one namespace. Opened and closed with its adapter."""

    def __init__(self, options: RedisOptions, root: str, *, testing: bool) -> None:
        self._options = options
        self._root = root
        self._testing = "1" if testing else "0"
        self._server: Server | None = None
        self._deadlines = Deadlines()

    @property
    def client(self) -> Any:
        """The redis-py client of an open link."""
        return self._open_server.client

    @property
    def _open_server(self) -> Server:
        if self._server is None:
            raise StoreUnavailable(
                "the redis driver is not open: enter the manager, or await adapter.open()."
            )
        return self._server

    def key(self, name: str) -> str:
        """The key of that name in this namespace."""
        return self._root + name

    async def open(self) -> None:
        """Connect, and see that somebody answers. Raises StoreUnavailable."""
        if self._server is None:
            self._server = make_server(self._options)
            self._deadlines = Deadlines()  # of this event loop
            try:
                await self.run("now")
            except BaseException:
                await self.aclose()
                raise

    async def aclose(self) -> None:
        """Close all connections."""
        self._deadlines.close()
        server, self._server = self._server, None
        if server is not None:
            await server.aclose()

    async def run(
        self, name: str, *args: Any, seconds: float | None = None, after: Sequence[Any] | None = None
    ) -> Any:
        """Run a script of this namespace: one round trip, or two on a server that does not know it yet.

        after: a command to go out before it, in the same round trip; the script runs when that one has been answered.
        """
        text, tail = script(name), (1, self._root, self._testing, *args)
        limit = self._options.timeout if seconds is None else seconds
        try:
            with self._deadlines.within(limit):
                try:
                    return await self._open_server.call("EVALSHA", text.sha, *tail, after=after)
                except NoScriptError:
                    return await self._open_server.call("EVAL", text.text, *tail)
        except _ERRORS as error:
            raise await self._named(error, limit) from error

    async def run_replicated(self, name: str, *args: Any) -> Any:
        """Run a script, then wait until as many replicas as configured have what it wrote, in one round trip.

        Raises StoreUnavailable when they do not in time: it is written, and may be written again by the same call.
        """
        tail = (1, self._root, self._testing, *args)
        reply, copies = await self._answer(self._piped(script(name), tail), None)
        if copies < self._options.replicas:
            raise StoreUnavailable(
                f"only {copies} of {self._options.replicas} replicas have confirmed the jobs in time: they are "
                "stored on the master. Send them again to be sure, or look at the replicas."
            )
        return reply

    async def _piped(self, text: Script, tail: Sequence[Any]) -> tuple[Any, int]:
        milliseconds = int(
            self._options.timeout * 400
        )  # twice, where the script is unknown, within the deadline
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
        return await self._answer(self._open_server.call(*args), seconds)

    async def _answer(self, call: Coroutine[Any, Any, T], seconds: float | None) -> T:
        limit = self._options.timeout if seconds is None else seconds
        try:
            with self._deadlines.within(limit):
                return await call
        except _ERRORS as error:
            raise await self._named(error, limit) from error

    async def _named(self, error: Exception, limit: float) -> StoreError | ConfigError:
        """The client's error under our name.

        A call that is cut off closes its connection (see client.py), so that nobody reads its late reply.
        """
        if type(error) is TimeoutError:
            return StoreUnavailable(f"redis did not answer within {limit:g} s.")
        text = str(error)
        if isinstance(error, _GONE) or text.startswith(_GONE_CODES):
            await self._forget_connections()
            return StoreUnavailable(f"redis cannot be used now: {_words(error)}")
        if isinstance(error, OutOfMemoryError):
            return StoreFull(f"redis is out of memory: {_words(error)}")
        if text.startswith(_FULL_CODES):
            return StoreFull(f"redis cannot store: {_words(error)}")
        return StoreError(f"redis refused a call: {_words(error)}")

    async def _forget_connections(self) -> None:
        if self._server is not None:
            await self._server.forget()


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
