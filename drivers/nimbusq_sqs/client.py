"""The connection: one client of whatever session was given, a deadline on each call, errors in nimbusq's words."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from nimbusq.errors import ConfigError, MissingExtra, NimbusqError, StoreError, StoreUnavailable

try:
    from botocore.exceptions import (
        BotoCoreError,
        ClientError,
        ConnectTimeoutError,
        EndpointConnectionError,
        NoCredentialsError,
        NoRegionError,
        PartialCredentialsError,
    )
except ModuleNotFoundError as error:  # the name by which the extra is found
    raise ModuleNotFoundError("the sqs driver needs aioboto3", name="aioboto3") from error

DEADLINE: Final = 5.0
"""Seconds for one call, beyond what it is asked to wait."""
CONNECTIONS: Final = 32
"""Receives, sends, deletes and extensions that are under way at once."""

_NOT_SENT = (EndpointConnectionError, ConnectTimeoutError)
_MISCONFIGURED = (NoCredentialsError, PartialCredentialsError, NoRegionError)
_LATER = ("RequestThrottled", "OverLimit", "KmsThrottled", "QueueDeletedRecently", "PurgeQueueInProgress")
"""Client exception classes that stand for "the same call may succeed later"."""


class ReplyLost(StoreUnavailable):
    """The request may have been carried out, or not."""


class QueueMissing(StoreUnavailable):
    """There is no such queue."""


class Refused(StoreError):
    """The server refuses this one entry of a batch, and would again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """How to reach SQS. session: anything with `client("sqs", …)` or `create_client("sqs", …)`; None makes one."""

    session: Any = field(default=None, repr=False)
    endpoint_url: str | None = None
    region: str | None = None
    allow_http: bool = False

    def __post_init__(self) -> None:
        """Raises ConfigError for cleartext to another host."""
        url = urlsplit(self.endpoint_url or "https://")
        if url.scheme not in {"http", "https"}:
            raise ConfigError(f"sqs_endpoint_url must be an http(s) URL, not {url.scheme or 'no'}://….")
        if self.cleartext and not self.allow_http:
            raise ConfigError(
                f"sqs_endpoint_url would send jobs to {url.hostname} in clear text: use https, or set the option "
                "sqs_allow_http where the network between is trusted."
            )

    @property
    def cleartext(self) -> bool:
        """Jobs leave this host unencrypted."""
        url = urlsplit(self.endpoint_url or "https://")
        return url.scheme == "http" and url.hostname not in {"localhost", "127.0.0.1", "::1"}

    def factory(self) -> Callable[..., Any]:
        """What makes a client. Raises MissingExtra without a client library, ConfigError for another object."""
        session = self.session if self.session is not None else _default_session()
        make = getattr(session, "client", None) or getattr(session, "create_client", None)
        if not callable(make):
            raise ConfigError(
                f"a session must have client('sqs', …), as aioboto3.Session has; {type(session)} has not."
            )
        return make  # type: ignore[no-any-return]  # both libraries are untyped

    def arguments(self) -> dict[str, Any]:
        """What the client is made with, beside the service's name."""
        from aiobotocore.config import AioConfig

        config = AioConfig(
            connect_timeout=DEADLINE,
            read_timeout=60,  # our own deadline on each call ends it before
            max_pool_connections=CONNECTIONS,
            retries={"total_max_attempts": 1},  # a send repeated behind our back could store a job twice
            parameter_validation=False,  # the server validates
            user_agent="nimbusq",  # else botocore composes its long one anew for each request
        )
        given = {"endpoint_url": self.endpoint_url, "region_name": self.region}
        return {"config": config, **{name: value for name, value in given.items() if value}}


def _default_session() -> Any:
    try:
        import aioboto3
    except ModuleNotFoundError:
        try:
            from aiobotocore.session import get_session
        except ModuleNotFoundError as error:
            raise MissingExtra("the sqs driver needs aioboto3: pip install 'nimbusq[sqs]'.") from error
        return get_session()
    return aioboto3.Session()


class SqsClient:
    """One client, for one event loop. `missing` are the URLs that the server has said not to know."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._client: Any = None
        self._opened = AsyncExitStack()
        self.missing: set[str] = set()

    async def open(self) -> None:
        """Make the client. Raises ConfigError where region or credentials are missing."""
        if self._client is not None:
            return
        make = self._connection.factory()
        try:
            self._client = await self._opened.enter_async_context(make("sqs", **self._connection.arguments()))
        except (BotoCoreError, ValueError) as error:
            raise ConfigError(f"no SQS client can be made: {error}") from error

    async def aclose(self) -> None:
        self._client = None
        await self._opened.aclose()

    async def call(self, operation: str, *, patience: float = 0.0, **parameters: Any) -> Mapping[str, Any]:
        """Call an operation of the client; `patience` is the time that it is asked to wait, in seconds.

        Raises ReplyLost where it is open whether the request was carried out, QueueMissing, StoreUnavailable, or
        StoreError where the server refuses.
        """
        client = self._client
        if client is None:
            raise StoreUnavailable("the sqs driver is not open: enter `async with Manager(...)` first.")
        try:
            async with asyncio.timeout(DEADLINE + patience):
                reply: Mapping[str, Any] = await getattr(client, operation)(**parameters)
                return reply
        except TimeoutError as error:
            raise ReplyLost(f"SQS did not answer {operation} within {DEADLINE + patience:g} s.") from error
        except ClientError as error:
            raise self._refusal(client, operation, error, parameters.get("QueueUrl")) from error
        except BotoCoreError as error:
            raise _trouble(operation, error) from error

    def _refusal(self, client: Any, operation: str, error: ClientError, url: str | None) -> StoreError:
        """By the client's exception classes: the codes behind them differ between servers."""
        if isinstance(error, client.exceptions.QueueDoesNotExist):
            if url:
                self.missing.add(url)
            return QueueMissing(f"SQS has no queue {url or 'of that name'}: run `nimbusq migrate up`.")
        later = tuple(getattr(client.exceptions, name) for name in _LATER if hasattr(client.exceptions, name))
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 400)
        if isinstance(error, later) or status >= 500 or status == 429:
            return StoreUnavailable(f"SQS cannot do {operation} now: {error}")
        return StoreError(f"SQS refused {operation}: {error}")


def _trouble(operation: str, error: BotoCoreError) -> NimbusqError:
    if isinstance(error, _MISCONFIGURED):
        return ConfigError(f"SQS cannot be called: {error}")
    if isinstance(error, _NOT_SENT):
        return StoreUnavailable(f"SQS cannot be reached: {error}")
    return ReplyLost(f"the connection broke during {operation}: {error}")
