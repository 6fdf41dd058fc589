"""The adapter: pushes with a producer in the caller's loop; claims and settles through a session, see there."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, Self

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
    SettleStatus,
    Stores,
    Want,
)
from nimbusq.envelope import Envelope
from nimbusq.errors import DispatchUncertain, UnsupportedByDriver
from nimbusq_kafka import checkup
from nimbusq_kafka.cluster import Cluster
from nimbusq_kafka.config import KafkaConfig
from nimbusq_kafka.depth import DepthMeter
from nimbusq_kafka.outbox import Outbox
from nimbusq_kafka.records import Counters, Outgoing, pushed
from nimbusq_kafka.session import Session
from nimbusq_kafka.topics import TopicNames
from nimbusq_kafka.troubles import is_refusal, translated

_STORE = "Set QUEUE_STORE_URL (or Manager(..., store=...)) to a redis or database URL, or use such a driver."


class KafkaAdapter:
    """Jobs in Kafka. ``KafkaAdapter.from_url("kafka://localhost:9092", DriverSettings())``.

    A process that only pushes is no member of the consumer group: it joins with its first claim. Clones share that
    membership, since a group's member is a process, not a connection.
    """

    def __init__(self, config: KafkaConfig) -> None:
        self._config = config
        self._names = TopicNames(config)
        self._outbox = Outbox(config)
        self._cluster = Cluster(config, self._names)
        self._meter = DepthMeter(config, self._names, self._cluster)
        self._membership = _Membership(config, self._names)
        self._is_clone = False
        self.stores = Stores()
        self.capabilities = Capabilities(
            driver="kafka",
            durable=True,
            lease="session",
            fenced=True,
            atomic=False,
            transactional=False,
            priorities=False,
            cancellable=False,
            max_delay=None,
            max_lease=None,
            max_body=config.max_body,
        )

    @classmethod
    def from_url(cls, url: str, settings: DriverSettings) -> Self:
        return cls(KafkaConfig.from_url(url, settings))

    def clone(self) -> Self:
        clone = type(self)(self._config)
        clone._membership, clone._is_clone = self._membership, True
        return clone

    async def open(self) -> None:
        """Connect the producer; a clone's connects with its first push, since most clones only ask."""
        if not self._is_clone:
            await self._outbox.open()

    async def aclose(self) -> None:
        if not self._is_clone:
            await self._membership.aclose()
        for part in (self._meter, self._cluster, self._outbox):
            await part.aclose()

    async def setup(self, queues: Sequence[str]) -> None:
        """Create the topics, by a client of its own: the adapter need not be open, and nothing is left open."""
        fresh = type(self)(self._config)
        try:
            await fresh._cluster.setup(queues)
        finally:
            await fresh._cluster.aclose()

    # --- push --------------------------------------------------------------------------------------------------

    async def push(self, envelopes: Sequence[Envelope], *, tx: object | None = None) -> Sequence[Pushed]:
        """See `nimbusq.driver.Adapter.push`. Not all or none: of a call that raises, some jobs may be stored; and a
        repeated push stores a second record with the same id."""
        if tx is not None:
            raise UnsupportedByDriver(
                "kafka", "dispatch in a transaction", "Send after the commit. " + _STORE
            )
        await self._cluster.ensure([envelope.queue for envelope in envelopes])
        records = [pushed(one, self._names.for_delay(one.queue, one.delay)) for one in envelopes]
        await self._send(records, [envelope.id for envelope in envelopes])
        return [Pushed(envelope.id) for envelope in envelopes]

    async def push_raw(self, queue: str, raw: bytes, *, job_id: str | None = None) -> Pushed:
        """Put bytes into the queue as a job, due now, whether they are an envelope or not."""
        job_id = job_id or str(uuid.uuid4())
        await self._cluster.ensure([queue])
        headers = Counters(job_id=job_id).to_headers()
        await self._send([Outgoing(topic=self._names.ready(queue), value=raw, headers=headers)], [job_id])
        return Pushed(job_id)

    async def _send(self, records: Sequence[Outgoing], ids: Sequence[str]) -> None:
        if not records:
            return
        for job_id, error in zip(ids, await self._outbox.send(records), strict=True):
            if error is not None and is_refusal(error):
                raise translated(error, "pushing") from error
            if error is not None:
                raise DispatchUncertain(job_id) from error

    # --- claim to settle ---------------------------------------------------------------------------------------

    async def claim(self, want: Want) -> Claimed:
        """See `nimbusq.driver.Adapter.claim`. The lease is the membership in the group; `Want.lease` is not used."""
        if any(lane.rate is not None for lane in want.lanes):
            raise UnsupportedByDriver("kafka", "rate limits shared by all workers", _STORE)
        return await (await self._membership.session()).claim(want)

    async def extend(self, claims: Sequence[Claim], *, lease: float) -> Sequence[Renewal]:  # noqa: ARG002 - the session has its own
        """Which claims are held still: the session keeps them, as long as their partitions stay here."""
        session = self._membership.current
        return [
            Renewal.RENEWED if session is not None and session.holds(claim) else Renewal.LOST
            for claim in claims
        ]

    async def settle(
        self, settlements: Sequence[Settlement], *, tx: object | None = None
    ) -> Sequence[Settled]:
        if tx is not None:
            raise UnsupportedByDriver("kafka", "completion in a transaction", _STORE)
        session = self._membership.current
        if session is None:
            return [Settled(SettleStatus.LOST)] * len(settlements)
        return await session.settle(settlements)

    # --- looking -----------------------------------------------------------------------------------------------

    async def depth(self, queues: Sequence[str]) -> Sequence[Depth]:
        """Exact as of the last commits; `oldest` is not known."""
        return await self._meter.measure(queues)

    async def doctor(self) -> Sequence[Finding]:
        return await checkup.check(self._config, self._names, self._cluster)

    async def audit(self) -> list[tuple[str, str, str, int, Any]]:
        """Kafka keeps no audit."""
        return []


class _Membership:
    """The process's session, started when it is first needed and again after it has ended. Shared by clones."""

    def __init__(self, config: KafkaConfig, names: TopicNames) -> None:
        self._config = config
        self._names = names
        self._session: Session | None = None

    @property
    def current(self) -> Session | None:
        """The session, if there is one that lives."""
        session = self._session
        return session if session is not None and not session.over else None

    async def session(self) -> Session:
        """The living session. Raises StoreUnavailable."""
        session = self.current
        if session is None:
            session = self._session = Session(self._config, self._names)
            session.start()
        await session.joined()
        return session

    async def aclose(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.aclose()
