"""The adapter: each verb in terms of receiving, sending, hiding and deleting messages."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Self

from nimbusq.clock import Clock, SystemClock
from nimbusq.driver import (
    Capabilities,
    Claim,
    Claimed,
    Depth,
    DriverSettings,
    Finding,
    Pushed,
    Renewal,
    Settled,
    Settlement,
    Stores,
    Want,
)
from nimbusq.envelope import Envelope
from nimbusq.errors import ConfigError, NimbusqError, StoreError, StoreUnavailable, UnsupportedByDriver
from nimbusq_sqs import batches, doctor, leases, pushing
from nimbusq_sqs.body import to_text
from nimbusq_sqs.claiming import claimed
from nimbusq_sqs.client import Connection, QueueMissing, SqsClient
from nimbusq_sqs.limits import MAX_DELAY, MAX_MESSAGE, MAX_VISIBLE_IN, RESERVED
from nimbusq_sqs.message import Outgoing
from nimbusq_sqs.names import Addresses
from nimbusq_sqs.queues import Queues
from nimbusq_sqs.receiving import Intake
from nimbusq_sqs.settling import Settling
from nimbusq_sqs.trail import Trail

_URL: Final = re.compile(r"sqs(?:://(?P<region>[a-z0-9-]*))?")

CAPABILITIES: Final = Capabilities(
    driver="sqs",
    durable=True,
    lease="timed",
    fenced=False,
    atomic=False,
    transactional=False,
    priorities=False,
    cancellable=False,
    max_delay=None,
    max_lease=MAX_VISIBLE_IN,
    max_body=MAX_MESSAGE - RESERVED,
    exact_delay=float(MAX_DELAY),
)


class SqsAdapter:
    """Jobs in Amazon SQS.

    queue_url: the URL of the queue `default`, a map of queue names to URLs, or the beginning of all URLs and ``*``.
        Queues without a URL are found by name, behind the settings' prefix, and made where they are missing.
    session: what makes the client: an `aioboto3.Session`, an aiobotocore session, or anything of that shape.
    longest_delay: greatest DelaySeconds that is asked for; longer delays hop. group: the FIFO group of a job;
        by default its queue, so that a FIFO queue runs one job after the other.
    """

    stores: Stores = Stores()

    def __init__(
        self,
        queue_url: str | Mapping[str, str] | None = None,
        *,
        session: Any = None,
        endpoint_url: str | None = None,
        region: str | None = None,
        allow_http: bool = False,
        settings: DriverSettings | None = None,
        clock: Clock | None = None,
        longest_delay: int = MAX_DELAY,
        group: Callable[[Envelope], str] | None = None,
    ) -> None:
        self._queue_url = queue_url
        self._settings = settings or DriverSettings()
        self.connection = Connection(
            session=session, endpoint_url=endpoint_url, region=region, allow_http=allow_http
        )
        self.addresses = Addresses.parse(queue_url, prefix=self._settings.prefix)
        self._clock = clock or SystemClock()
        self._longest_delay = longest_delay
        self.capabilities = replace(CAPABILITIES, exact_delay=float(longest_delay))
        self._group = group or _queue_of
        # The parts, not yet connected. Each belongs to the event loop that opens the adapter.
        self.client = SqsClient(self.connection)
        self._queues = Queues(self.client, self.addresses)
        self._settling = Settling(
            self.client, self._queues, self._clock, longest_delay=self._longest_delay, group=self._group
        )
        self._intake = Intake(
            self.client,
            self._queues,
            self._clock,
            longest_delay=self._longest_delay,
            hop=self._settling.hop,
            hand_back=self._settling.hand_back,
        )

    @classmethod
    def from_url(cls, url: str, settings: DriverSettings) -> Self:
        """``sqs://default`` takes region and credentials from the environment, as every AWS client does;
        ``sqs://eu-west-1`` names the region. Options: sqs_queue_url, sqs_endpoint_url, sqs_allow_http.
        """
        match = _URL.fullmatch(url)
        if match is None:
            raise ConfigError(
                "an sqs URL names a region or nothing, as in sqs://eu-west-1 or sqs://default; queues are named by "
                "the setting sqs_queue_url."
            )
        options = settings.options
        adapter = cls(
            options.get("sqs_queue_url"),
            endpoint_url=options.get("sqs_endpoint_url") or os.environ.get("SQS_ENDPOINT_URL"),
            region=None if match["region"] in {None, "", "default"} else match["region"],
            allow_http=bool(options.get("sqs_allow_http")),
            settings=settings,
        )
        adapter.connection.factory()  # without a client library, say so now
        return adapter

    def clone(self) -> Self:
        connection = self.connection
        return type(self)(
            self._queue_url,
            session=connection.session,
            endpoint_url=connection.endpoint_url,
            region=connection.region,
            allow_http=connection.allow_http,
            settings=self._settings,
            clock=self._clock,
            longest_delay=self._longest_delay,
            group=self._group,
        )

    # --- life cycle --------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect. Any answer will do, since a role may be allowed to send only. Raises StoreUnavailable."""
        await self.client.open()
        self._queues.open()
        try:
            await self.client.call("get_queue_url", QueueName=self.addresses.of("default").name)
        except NimbusqError as error:
            if isinstance(error, StoreError) and not _is_unavailable(error):
                return
            await self.client.aclose()
            raise

    async def aclose(self) -> None:
        """Wait for polls under way (at most 5 s), hand back what they bring, and disconnect."""
        try:
            await self._intake.aclose()
        finally:
            await self.client.aclose()

    async def setup(self, queues: Sequence[str]) -> None:
        """Make the queues, each with its queue for failed jobs; opened or not."""
        fresh = self.clone()
        await fresh.open()
        try:
            for name in queues:
                await fresh.make(name)
        finally:
            await fresh.aclose()

    async def make(self, queue: str) -> None:
        """Make one queue and its queue for failed jobs, where they are missing."""
        await self._queues.get(queue)
        await self._queues.failed_of(queue)

    # --- verbs -------------------------------------------------------------------------------------------------

    async def push(self, envelopes: Sequence[Envelope], *, tx: object | None = None) -> Sequence[Pushed]:
        """Send jobs, in batches of at most ten and 1 MiB; the batches of one call are not one step.

        Everything is checked first, so a job that cannot be sent stops them all: PayloadTooLarge,
        UnsupportedByDriver. Then each job that was not stored is named: DispatchUncertain where a reply was lost,
        else StoreUnavailable.
        """
        if tx is not None:
            raise UnsupportedByDriver(
                "sqs", "dispatch in a transaction", "Send after the commit, or use the database driver."
            )
        return await pushing.push(
            self.client, self._queues, envelopes, longest_delay=self._longest_delay, group=self._group
        )

    async def claim(self, want: Want) -> Claimed:
        """Receive messages; SQS gives lost ones to whoever asks next, so a limit of 0 has nothing to do."""
        if want.limit <= 0:
            return Claimed()
        return claimed(await self._intake.take(want), want.token)

    async def extend(self, claims: Sequence[Claim], *, lease: float) -> Sequence[Renewal]:
        return await leases.extend(self.client, self._clock, claims, lease)

    async def settle(
        self, settlements: Sequence[Settlement], *, tx: object | None = None
    ) -> Sequence[Settled]:
        if tx is not None:
            raise UnsupportedByDriver("sqs", "completion in a transaction", "Use the database driver.")
        return await self._settling.settle(settlements)

    async def depth(self, queues: Sequence[str]) -> Sequence[Depth]:
        return [await self._queues.depth(name) for name in queues]

    async def doctor(self) -> Sequence[Finding]:
        return await doctor.examine(self.client, self._queues, cleartext=self.connection.cleartext)

    async def push_raw(self, queue: str, raw: bytes, *, job_id: str | None = None) -> Pushed:
        """Put bytes into the queue as a job, due now, whether they are an envelope or not."""
        job_id = job_id or str(uuid.uuid4())
        message = Outgoing(body=to_text(raw), trail=Trail(id=job_id), group=queue, key=job_id)
        (answer,) = await batches.send(self.client, await self._queues.get(queue), [message])
        if answer is not None:
            raise answer
        return Pushed(job_id)

    async def audit(self) -> list[tuple[str, str, str, int, Any]]:
        """SQS keeps none."""
        return []


def _is_unavailable(error: StoreError) -> bool:
    return isinstance(error, StoreUnavailable) and not isinstance(error, QueueMissing)


def _queue_of(envelope: Envelope) -> str:
    return envelope.queue
