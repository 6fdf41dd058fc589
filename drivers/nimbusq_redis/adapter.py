"""The adapter: five verbs, each one script for however many jobs."""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from typing import Self

from nimbusq.driver import (
    Capabilities,
    Claim,
    Claimed,
    Depth,
    DriverSettings,
    Finding,
    Pushed,
    PushGroups,
    Renewal,
    Settled,
    Settlement,
    Stores,
    Want,
)
from nimbusq.envelope import Envelope
from nimbusq.errors import ConfigError, UnsupportedByDriver
from nimbusq_redis import doctor, testing
from nimbusq_redis.batches import RedisBatchStore
from nimbusq_redis.claiming import Claimer
from nimbusq_redis.entries import entries
from nimbusq_redis.failed import RedisFailedStore
from nimbusq_redis.history import RedisHistory
from nimbusq_redis.jobs import RedisJobs
from nimbusq_redis.limiter import RedisJobLimiter
from nimbusq_redis.link import Link
from nimbusq_redis.locker import RedisLocker
from nimbusq_redis.options import RedisOptions
from nimbusq_redis.pushes import push_again, read_pushed
from nimbusq_redis.refs import ref
from nimbusq_redis.results import RedisResults
from nimbusq_redis.schedules import RedisSchedules
from nimbusq_redis.settlements import read_settled, settlement_args
from nimbusq_redis.workers import RedisWorkers

CAPABILITIES = Capabilities(
    driver="redis",
    durable=True,
    lease="timed",
    fenced=True,
    atomic=True,
    transactional=False,
    priorities=True,
    cancellable=True,
    max_delay=None,
    max_lease=None,
    max_body=64 * 1024 * 1024,
)
_PREFIX = re.compile(r"[a-z][a-z0-9_]{0,31}")
_RENEWALS = (Renewal.LOST, Renewal.RENEWED, Renewal.CANCEL)


class RedisAdapter:
    """Jobs in Redis or Valkey, version 7 or later.

    One namespace is one hash tag, ``{prefix}``, so that every script finds all of its keys in one slot of a cluster.
    More throughput than one server has needs more namespaces. `link.client` is the redis-py client, while it is open.
    """

    capabilities = CAPABILITIES

    def __init__(self, options: RedisOptions, settings: DriverSettings) -> None:
        if not _PREFIX.fullmatch(settings.prefix):
            raise ConfigError(f"the prefix {settings.prefix!r} does not match [a-z][a-z0-9_]{{0,31}}.")
        self._options = options
        self._settings = settings
        self.link = link = Link(options, f"{{{settings.prefix}}}:", testing=settings.testing)
        self._history = (settings.history_limit, settings.history_ttl)
        self._claimer = Claimer(link, history=self._history, sweep_every=options.sweep_every)
        self._pushes = PushGroups(self._push_together, patience=options.timeout)
        self.stores = Stores(
            locker=RedisLocker(link),
            batches=RedisBatchStore(link),
            limiter=RedisJobLimiter(link),
            failed=RedisFailedStore(link),
            results=RedisResults(link),
            jobs=RedisJobs(link),
            schedules=RedisSchedules(link),
            workers=RedisWorkers(link),
            history=RedisHistory(link, settings),
        )

    @classmethod
    def from_url(cls, url: str, settings: DriverSettings) -> Self:
        """``redis://host:6379/0``, ``rediss://``, ``unix:///path``, ``redis+sentinel://…`` or ``redis+cluster://…``.

        Options of the driver (`RedisOptions`) may stand in the query or in `settings.options`.
        """
        return cls(RedisOptions.from_url(url, settings.options), settings)

    def clone(self) -> Self:
        return type(self)(self._options, self._settings)

    async def open(self) -> None:
        await self.link.open()

    async def aclose(self) -> None:
        await self.link.aclose()

    async def setup(self, queues: Sequence[str]) -> None:
        """Queues need no preparation."""

    async def push(self, envelopes: Sequence[Envelope], *, tx: object | None = None) -> Sequence[Pushed]:
        _refuse(tx)
        if not envelopes:
            return []
        return await self._pushes.push(envelopes)

    async def _push_together(self, envelopes: Sequence[Envelope]) -> Sequence[Pushed]:
        run = self.link.run_replicated if self._options.durability == "replicated" else self.link.run
        return read_pushed(envelopes, await run("push", *entries(envelopes)))

    async def claim(self, want: Want) -> Claimed:
        return await self._claimer.claim(want)

    async def extend(self, claims: Sequence[Claim], *, lease: float) -> Sequence[Renewal]:
        if not claims:
            return []
        flat = [part for claim in claims for part in (ref(claim.id), claim.queue, claim.token)]
        seconds = min(self._options.timeout, lease / 6)
        return [_RENEWALS[answer] for answer in await self.link.run("extend", lease, *flat, seconds=seconds)]

    async def settle(
        self, settlements: Sequence[Settlement], *, tx: object | None = None
    ) -> Sequence[Settled]:
        _refuse(tx)
        if not settlements:
            return []
        reply = await self.link.run("settle", *self._history, *settlement_args(settlements))
        return read_settled(reply, len(settlements))

    async def depth(self, queues: Sequence[str]) -> Sequence[Depth]:
        reply = await self.link.run("depth", *queues)
        return [
            Depth(
                queue=queue,
                pending=pending,
                delayed=delayed,
                running=running,
                oldest=None if oldest < 0 else oldest / 1e6,
            )
            for queue, pending, delayed, running, oldest in zip(
                queues, *(reply[at::4] for at in range(4)), strict=True
            )
        ]

    async def doctor(self) -> Sequence[Finding]:
        return await doctor.examine(self.link)

    async def push_raw(self, queue: str, raw: bytes, *, job_id: str | None = None) -> Pushed:
        """Put bytes into the queue as a job, due now, whether they are an envelope or not."""
        pushed = await push_again(self.link, queue, raw, job_id or str(uuid.uuid4()))
        assert pushed is not None, "no record was asked for"
        return pushed

    async def audit(self) -> list[testing.AuditTuple]:
        """Every transition so far, in order: (event, job id, token, attempt, extra). Testing mode only."""
        self._must_be_testing()
        return await testing.read_audit(self.link)

    async def advance(self, seconds: float) -> None:
        """Move the store's clock, and the time to live of everything in it, forward. Testing mode only."""
        self._must_be_testing()
        await self.link.run("advance", seconds, seconds=30.0)

    def _must_be_testing(self) -> None:
        if not self._settings.testing:
            raise ConfigError(
                "the clock moves and the audit is kept in testing mode only: DriverSettings(testing=True)."
            )


def _refuse(tx: object | None) -> None:
    if tx is not None:
        raise UnsupportedByDriver(
            "redis", "dispatch in a transaction", "Send after the commit, or use the database driver."
        )
