"""The Manager holds the driver and everything that a dispatch or a worker needs of it."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack
from contextvars import ContextVar, Token
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, Self

from nimbusq.clock import Clock, SystemClock
from nimbusq.codec import Codec, JsonCodec
from nimbusq.config import Settings
from nimbusq.driver import Adapter, Depth, Pushed, Stores
from nimbusq.envelope import Envelope
from nimbusq.errors import ConfigError, NoManager, PayloadTooLarge, UnsupportedByDriver
from nimbusq.loading import cleartext_host, load_adapter
from nimbusq.middleware import Middleware, Stack
from nimbusq.names import check_name
from nimbusq.observe import Observer, Observers
from nimbusq.registry import Registry
from nimbusq.registry import registry as all_jobs
from nimbusq.routed import Route

log = logging.getLogger("nimbusq.manager")

SURELY_FITS: Final = 512
"""Bytes of a body that no limit refuses, so that the common job is not encoded twice."""


class Sent(NamedTuple):
    """The driver's answers in order, and the ids of jobs that the inline driver has already run to their end."""

    answers: Sequence[Pushed]
    ended: frozenset[str] = frozenset()


class Manager:
    """A queue: ``async with Manager("redis://…") as manager``.

    driver: a driver's name, a URL, or an adapter; None takes the settings'. store: the same, for a redis or
    database driver that coordinates beside sqs or kafka. Inside the ``async with`` it is the current manager;
    `boot` makes one the default of the process.
    """

    def __init__(
        self,
        driver: str | Adapter | None = None,
        *,
        store: str | Adapter | None = None,
        settings: Settings | None = None,
        observers: Sequence[Observer] = (),
        middleware: Sequence[Middleware] = (),
        codec: Codec | None = None,
        registry: Registry | None = None,
        clock: Clock | None = None,
    ) -> None:
        if isinstance(driver, str):
            settings = (settings or Settings()).model_copy(update={"driver": driver})
        self.settings = settings or Settings()
        self.registry = registry or all_jobs
        self.codec = codec or JsonCodec()
        self.clock = clock or SystemClock()
        self.observers = Observers(observers)
        self.middleware = Stack(middleware)
        self.route = Route(self._adapter(driver, self.settings.url), self._store(store))
        self.loop: asyncio.AbstractEventLoop | None = None
        """The event loop in which it is open, for callers from other threads."""
        self._open = False
        self._entered: list[Token[Manager | None]] = []
        self._inline: Inline | None = None

    def _adapter(self, given: str | Adapter | None, url: str) -> Adapter:
        if given is None or isinstance(given, str):
            return load_adapter(url, self.settings.for_driver(url))
        return given

    def _store(self, given: str | Adapter | None) -> Adapter | None:
        given = given or self.settings.store
        return (
            load_adapter(given, self.settings.for_driver(given, beside=True))
            if isinstance(given, str)
            else given
        )

    @property
    def adapter(self) -> Adapter:
        """The driver that carries plain jobs."""
        return self.route.carrier

    @property
    def store(self) -> Adapter | None:
        """The driver that coordinates beside `adapter`, or None."""
        return self.route.store

    @property
    def stores(self) -> Stores:
        """Locker, batches, failed jobs and the rest; see `nimbusq.driver.Stores`."""
        return self.route.stores

    # --- life cycle ------------------------------------------------------------------------------------------

    async def open(self) -> Self:
        """Connect. Raises StoreUnavailable or SchemaMismatch."""
        if not self._open:
            async with AsyncExitStack() as opened:
                for adapter in self.route.adapters:
                    await adapter.open()
                    opened.push_async_callback(adapter.aclose)
                opened.pop_all()
            self._open = True
            self.loop = asyncio.get_running_loop()
        return self

    async def aclose(self) -> None:
        """Disconnect. A manager can be opened again."""
        if self._open:
            self._open, self.loop = False, None
            async with AsyncExitStack() as closing:
                for adapter in self.route.adapters:
                    closing.push_async_callback(adapter.aclose)
        if _default.manager is self:
            _default.manager = None

    async def __aenter__(self) -> Self:
        await self.open()
        self._entered.append(_current.set(self))
        return self

    async def __aexit__(self, *error: object) -> None:
        _current.reset(self._entered.pop())
        await self.aclose()

    def make_current(self) -> None:
        """The current manager of the calling task from now on, as inside an ``async with``."""
        _current.set(self)

    # --- verbs -----------------------------------------------------------------------------------------------

    def push(
        self, envelopes: Sequence[Envelope], *, tx: object | None = None, checked: bool = False
    ) -> Coroutine[Any, Any, Sent]:
        """Check, route and store jobs. The one way from a dispatch into a driver."""
        return self.send(envelopes, partial(self._push, envelopes, tx), raising=True, checked=checked)

    async def send(
        self,
        envelopes: Sequence[Envelope],
        store: Callable[[], Awaitable[Sequence[Pushed]]],
        *,
        raising: bool = False,
        checked: bool = False,
    ) -> Sent:
        """Store jobs by `store`, inside the middleware; then tell the observers, and on the inline driver run them.

        raising: raise what the jobs themselves raise on the inline driver. checked: each has passed `check_size`.
        """
        for envelope in () if checked else envelopes:
            self.check_size(envelope)
        if not self.middleware.around_pushes:
            answers = await store()
        else:
            async with self.middleware.around_push(envelopes):
                answers = await store()
        heard, inline = self.observers.wants("dispatched"), self.adapter.capabilities.inline
        if not (heard or inline):
            return Sent(answers)
        new = [envelope for envelope, answer in zip(envelopes, answers, strict=True) if answer.holder is None]
        if heard:
            for envelope in new:
                await self.observers.tell("dispatched", envelope)
        if not inline:
            return Sent(answers)
        return Sent(answers, await self.run_inline([envelope.id for envelope in new] if raising else []))

    def _push(self, envelopes: Sequence[Envelope], tx: object | None) -> Awaitable[Sequence[Pushed]]:
        if self.adapter.capabilities.inline:
            envelopes = [
                replace(envelope, delay=0.0) if envelope.delay else envelope for envelope in envelopes
            ]
        if envelopes and self.route.takes_all(tx=tx is not None):
            return self.adapter.push(envelopes, tx=tx)
        adapters = [self.route.of(envelope, tx=tx is not None) for envelope in envelopes]
        if len(set(map(id, adapters))) == 1:
            return adapters[0].push(envelopes, tx=tx)
        return self._push_apart(envelopes, adapters, tx)

    async def _push_apart(
        self, envelopes: Sequence[Envelope], adapters: Sequence[Adapter], tx: object | None
    ) -> Sequence[Pushed]:
        """Each job into its adapter, and the answers in the order of the jobs."""
        answers: dict[int, Pushed] = {}
        for adapter in self.route.adapters:
            positions = [position for position, its in enumerate(adapters) if its is adapter]
            if positions:
                part = [envelopes[position] for position in positions]
                answers.update(zip(positions, await adapter.push(part, tx=tx), strict=True))
        return [answers[position] for position in range(len(envelopes))]

    def check_size(self, envelope: Envelope) -> None:
        """Raises PayloadTooLarge before anything reaches the network."""
        if envelope.chain is None and not envelope.meta and len(envelope.body) < SURELY_FITS:
            return
        size = len(envelope.to_wire())
        driver = self.route.of(envelope).capabilities
        limit = min(self.settings.max_body, driver.max_body or self.settings.max_body)
        if size > limit:
            raise PayloadTooLarge(
                f"job {envelope.name} takes {size:,} bytes; the {driver.driver} driver carries at most {limit:,}. "
                "Store the data elsewhere and send a reference to it."
            )

    async def depth(self, queue: str = "default") -> Depth:
        """How many jobs of a queue are pending, delayed and running, over all adapters."""
        return (await self.depths([queue]))[0]

    async def depths(self, queues: Sequence[str]) -> list[Depth]:
        """`depth` of several queues in one round trip per adapter."""
        for queue in queues:
            check_name("queue", queue)
        parts = [await adapter.depth(queues) for adapter in self.route.adapters]
        return [_sum(queue, depths) for queue, depths in zip(queues, zip(*parts, strict=True), strict=True)]

    async def run_inline(self, job_ids: Iterable[str] = ()) -> frozenset[str]:
        """On the inline driver: run what is due in this task; which of `job_ids` have ended.

        Raises the last error of those that failed.
        """
        if self._inline is None:
            # The one edge that points upwards: only the inline driver makes the sender a worker.
            self._inline = importlib.import_module("nimbusq.worker.inline").InlineRunner(self)
        return await self._inline.drain(job_ids)

    def require(self, store: str, need: str) -> Any:
        """The named store. Raises UnsupportedByDriver, naming `need`, where the driver has none."""
        found = getattr(self.stores, store)
        if found is None:
            raise UnsupportedByDriver(
                self.adapter.capabilities.driver,
                need,
                "Set QUEUE_STORE_URL to a redis or database URL, or use such a driver.",
            )
        return found

    def check_jobs(self) -> list[str]:
        """What the driver could not do for the registered jobs' own options: one text each."""
        problems = []
        for model in self.registry:
            options = model.options
            probe = Envelope(id="probe", name=options.name, queue=options.queue, priority=options.priority)
            try:
                self.route.of(probe)
            except UnsupportedByDriver as error:
                problems.append(f"{options.name}: {error}")
        return problems


class Inline(Protocol):
    """What `Manager.run_inline` needs; implemented by `nimbusq.worker.inline`."""

    async def drain(self, job_ids: Iterable[str]) -> frozenset[str]: ...


def _sum(queue: str, depths: Sequence[Depth]) -> Depth:
    def total(name: str) -> int | None:
        values = [getattr(depth, name) for depth in depths]
        known = [value for value in values if value is not None]
        return sum(known) if len(known) == len(values) else None

    ages = [depth.oldest for depth in depths if depth.oldest is not None]
    return Depth(
        queue=queue,
        pending=total("pending"),
        delayed=total("delayed"),
        running=total("running"),
        oldest=max(ages, default=None),
    )


# --- which manager is current --------------------------------------------------------------------------------


class _Default:
    """The process default: the only module state. A ContextVar set in a lifespan is invisible to request tasks."""

    manager: Manager | None = None


_default = _Default()
_current: ContextVar[Manager | None] = ContextVar("nimbusq_manager", default=None)


def find_manager() -> Manager | None:
    """The manager of the surrounding ``async with``, else the process default, else None."""
    return _current.get() or _default.manager


def get_manager() -> Manager:
    """Like `find_manager`. Raises NoManager when there is none."""
    manager = find_manager()
    if manager is None:
        raise NoManager(
            "no manager is active: call `await nimbusq.boot()` at start, or enter `async with Manager(...)`."
        )
    return manager


def set_default(manager: Manager | None) -> None:
    """Make `manager` the default of this process; what was default before is not closed."""
    _default.manager = manager


Register = Callable[[], None] | Callable[[], Awaitable[None]]


async def boot(
    settings: Settings | None = None,
    *,
    register: Register | None = None,
    manager: Manager | None = None,
    **changes: Any,
) -> Manager:
    """Open a manager from the settings (and the environment) and make it the default of this process.

    register: called first, to import the modules that define jobs. `changes` override single settings; a `manager`
    brings its own. A default that was booted before is closed once the new one is open. Raises ConfigError for
    what cannot be used, StoreUnavailable when the backend cannot be reached. In strict mode also for jobs that the
    driver cannot carry, for cleartext to another host, and for whatever `nimbusq doctor` calls an error, such as
    unsafe durability.
    """
    if register is not None:
        answer = register()
        if inspect.isawaitable(answer):
            await answer
    manager = manager or Manager(settings=_changed(settings, changes))
    _object(manager, [*manager.check_jobs(), *_exposed(manager.settings)])
    await manager.open()
    try:
        if manager.settings.strict:
            _object(manager, await _unsafe(manager))
    except BaseException:
        await manager.aclose()
        raise
    before, _default.manager = _default.manager, manager
    if before is not None and before is not manager:
        await before.aclose()
    return manager


def _changed(settings: Settings | None, changes: dict[str, Any]) -> Settings:
    if settings is None or not changes:
        return settings or Settings(**changes)
    return Settings(**{**settings.model_dump(), **changes})


def _object(manager: Manager, problems: Iterable[str]) -> None:
    """Warn of each, or in strict mode refuse the first."""
    for problem in problems:
        if manager.settings.strict:
            raise ConfigError(f"{problem} (QUEUE_BOOT_STRICT)")
        log.warning("%s", problem)


def _exposed(settings: Settings) -> list[str]:
    """Connections that cross a network unencrypted."""
    urls = [settings.url, settings.store, settings.sqs_endpoint_url]
    hosts = [host for url in urls if url and (host := cleartext_host(url)) is not None]
    return [f"jobs and credentials travel to {host} in cleartext: use TLS" for host in hosts]


async def _unsafe(manager: Manager) -> list[str]:
    """What the drivers' own checks call an error."""
    return [
        finding.text
        for adapter in manager.route.adapters
        for finding in await adapter.doctor()
        if finding.level == "error"
    ]
