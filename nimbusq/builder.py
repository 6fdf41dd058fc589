"""How a job gets in: `dispatch(job).delay(60).send()`."""

from __future__ import annotations

import warnings
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Generic, Literal, Never, ParamSpec, Protocol, TypeVar, overload, runtime_checkable

from nimbusq.bridge import refuse_in_loop, wait_for
from nimbusq.envelope import Envelope, Overlap, Rate, Unique, check_key
from nimbusq.errors import DuplicateJob, InvalidJob, InvalidOption, NimbusqError, NoManager
from nimbusq.ids import new_id
from nimbusq.jobs import FunctionJob, Job, result_adapter
from nimbusq.keys import unique_key
from nimbusq.manager import Manager, Sent, find_manager
from nimbusq.options import check_priority, check_queue, check_retries, check_tags
from nimbusq.receipt import Receipt
from nimbusq.retry import seconds

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

OnDuplicate = Literal["raise", "return", "skip"]


class Handles(Protocol[R_co]):
    """A Job whose ``async def handle`` returns an R."""

    async def handle(self) -> R_co: ...


@runtime_checkable
class Wrapped(Protocol):
    """Something that stands for a job with options, such as `nimbusq.overlap.WithoutOverlapping`."""

    def dispatch(self) -> Dispatch[Any]: ...


class UnsentDispatchWarning(RuntimeWarning):
    """A `dispatch(...)` was dropped without `.send()`: nothing was queued."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the calls of a builder asked for; None leaves it to the job. Durations are seconds."""

    delay: float = 0.0
    at: datetime | None = None
    queue: str | None = None
    priority: int | None = None
    retries: int | None = None
    timeout: float | None = None
    expires: float | None = None
    tags: tuple[str, ...] = ()
    unique: Literal["slot", "lock"] | None = None
    unique_key: str | None = None
    unique_ttl: float | None = None
    on_duplicate: OnDuplicate = "raise"
    overlap: Overlap | None = None
    rate: Rate | None = None
    tx: object | None = None


class Dispatch(Generic[R]):
    """A job and how it is to be sent. Every call returns a copy; nothing happens before `send()`."""

    __slots__ = ("_armed", "_asked", "_job", "_manager")

    def __init__(self, job: Job, asked: Asked = Asked(), manager: Manager | None = None) -> None:  # frozen
        self._job = job
        self._asked = asked
        self._manager = manager
        self._armed = True

    def __repr__(self) -> str:
        return f"dispatch({self._job!r})"

    def __del__(self) -> None:
        if getattr(self, "_armed", False):
            warnings.warn(f"{self!r} was never sent: add .send().", UnsentDispatchWarning, stacklevel=2)

    def __await__(self) -> Never:
        self._armed = False
        raise TypeError(f"{self!r} is not sent yet: add .send(), as in `await dispatch(job).send()`.")

    def _with(self, **changes: Any) -> Dispatch[R]:
        return Dispatch(self._job, replace(self._asked, **changes), self._manager)

    def disarm(self) -> tuple[Job, Asked]:
        """Hand over the job and what was asked; this builder no longer warns that it was not sent."""
        self._armed = False
        return self._job, self._asked

    # --- options ---------------------------------------------------------------------------------------------

    def delay(
        self, delay: float | timedelta = 0.0, /, *, hours: float = 0, minutes: float = 0
    ) -> Dispatch[R]:
        """Not before that many seconds (or a timedelta, or ``minutes=5``) from the send, on the store's clock."""
        self._armed = False
        return self._with(
            delay=seconds(delay, "delay") + seconds(minutes * 60 + hours * 3600, "delay"), at=None
        )

    def at(self, when: datetime) -> Dispatch[R]:
        """Not before that instant; the datetime must be aware. A past one means now."""
        self._armed = False
        if not isinstance(when, datetime) or when.utcoffset() is None:
            raise InvalidOption(f"at() takes an aware datetime (with a time zone), not {when!r}.")
        return self._with(at=when, delay=0.0)

    def on_queue(self, queue: str) -> Dispatch[R]:
        self._armed = False
        return self._with(queue=check_queue(queue))

    def priority(self, priority: int) -> Dispatch[R]:
        """1 (first) to 10 (last), within its queue."""
        self._armed = False
        return self._with(priority=check_priority(priority))

    def retries(self, retries: int) -> Dispatch[R]:
        """Further runs after a failed one: at most retries + 1 runs."""
        self._armed = False
        return self._with(retries=check_retries(retries))

    def timeout(self, limit: float | timedelta) -> Dispatch[R]:
        """Limit of one run in seconds; running out of it is a failed attempt."""
        self._armed = False
        return self._with(timeout=seconds(limit, "timeout", positive=True))

    def expires(self, after: float | timedelta) -> Dispatch[R]:
        """Cancel the job if it has not started that many seconds after the send."""
        self._armed = False
        return self._with(expires=seconds(after, "expires", positive=True))

    def tags(self, *tags: str) -> Dispatch[R]:
        """Further tags, for the dashboard."""
        self._armed = False
        return self._with(tags=(*self._asked.tags, *check_tags(tags)))

    def unique(self, key: str | None = None, *, on_duplicate: OnDuplicate = "raise") -> Dispatch[R]:
        """One active job per (name, key): while it is delayed, ready, running, retrying or paused (Cyclone).

        Without a key: the job's `unique_id()`, else its arguments. A second send raises DuplicateJob with the
        holder's id, or with "return" and "skip" answers a Receipt with status "duplicate" and that id.
        """
        self._armed = False
        return self._with(
            unique="slot", unique_key=_checked_key(key), unique_ttl=None, on_duplicate=_mode(on_duplicate)
        )

    def unique_for(
        self,
        ttl: float | timedelta | None = None,
        *,
        key: str | None = None,
        on_duplicate: OnDuplicate = "skip",
    ) -> Dispatch[R]:
        """The same for at most `ttl` seconds from now (default: the job's `unique_for`, an hour), and skipped
        unless asked otherwise (Nimbus). The two kinds never see each other."""
        self._armed = False
        limit = self._job.options.unique_for if ttl is None else seconds(ttl, "unique_for", positive=True)
        return self._with(
            unique="lock", unique_key=_checked_key(key), unique_ttl=limit, on_duplicate=_mode(on_duplicate)
        )

    def without_overlapping(
        self,
        key: str,
        limit: int = 1,
        release_after: float | timedelta | None = None,
        expire_after: float | timedelta | None = None,
        *,
        max_releases: int | None = None,
    ) -> Dispatch[R]:
        """At most `limit` running jobs of this name with that key; see `nimbusq.envelope.Overlap`."""
        self._armed = False
        changes = {
            "overlap_limit": limit,
            "release_after": self._job.options.release_after if release_after is None else release_after,
            "expire_after": self._job.options.expire_after if expire_after is None else expire_after,
            "max_releases": self._job.options.max_releases if max_releases is None else max_releases,
        }
        return self._with(overlap=overlap_of(self._job, key, changes))

    def rate_limit(self, key: str, per_second: float, burst: int = 1) -> Dispatch[R]:
        """Start at most `per_second` jobs a second of those with this key, with bursts of `burst`, for the whole
        fleet and whatever their names; a job that is too early is put back until its turn, without an attempt."""
        self._armed = False
        limit = seconds(per_second, "per_second", positive=True)
        if isinstance(burst, bool) or not isinstance(burst, int) or burst < 1:
            raise InvalidOption(f"burst is an integer of 1 or more, not {burst!r}.")
        return self._with(rate=Rate(key=f"key:{check_key('rate', key)}", per_second=limit, burst=burst))

    def using(self, tx: object) -> Dispatch[R]:
        """Send in the application's own transaction: the job appears with its commit, or never."""
        self._armed = False
        return self._with(tx=tx)

    # --- sending ---------------------------------------------------------------------------------------------

    async def send(self) -> Receipt[R]:
        """Store the job. Raises a DispatchError when nothing was stored (DuplicateJob, UnsupportedByDriver,
        SerializationError, PayloadTooLarge …), a StoreError when the backend refused, DispatchUncertain when it
        is not known. Without a manager nothing happens and the status says "disabled"; in strict mode NoManager.
        """
        self._armed = False
        manager = self._manager or find_manager()
        if manager is None:
            return _disabled()
        envelope = build(self._job, self._asked, manager)
        sent = await manager.push([envelope], tx=self._asked.tx)
        return receipt_for(self._job, self._asked, envelope, sent, manager)

    def send_sync(self) -> Receipt[R]:
        """`send` for code that is not async: a handler in a thread, or a program that called
        `nimbusq.bridge.boot_sync`. Refused inside an event loop."""
        refuse_in_loop("send_sync()", "await send()")
        manager = self._manager or find_manager()
        self._armed = False
        return _disabled() if manager is None else wait_for(manager, self.send())


def _disabled() -> Receipt[Any]:
    from nimbusq.config import Settings

    if Settings().strict:
        raise NoManager("the job was not sent: no manager is active. Call `await nimbusq.boot()` at start.")
    return Receipt(id=new_id(), status="disabled")


def _checked_key(key: str | None) -> str | None:
    return None if key is None else check_key("unique", key)


def _mode(on_duplicate: object) -> Any:
    if on_duplicate not in ("raise", "return", "skip"):
        raise InvalidOption(f"on_duplicate is 'raise', 'return' or 'skip', not {on_duplicate!r}.")
    return on_duplicate


def overlap_of(job: Job, key: str, changes: dict[str, Any] | None = None) -> Overlap:
    """The overlap rule of this job under `key`, checked."""
    options = job.options.override(changes or {})
    return Overlap(
        key=check_key("overlap", key),
        limit=options.overlap_limit,
        release_after=options.release_after,
        expire_after=options.expire_after,
        max_releases=options.max_releases,
    )


def build(job: Job, asked: Asked, manager: Manager, **fixed: Any) -> Envelope:
    """The envelope of a dispatch; `fixed` are fields that the caller decides (id, batch, chain …).

    The only place where a job's own options, its hooks and the builder's calls meet.
    """
    options = job.options
    if options.name not in manager.registry or options.abstract:
        raise InvalidJob(f"{type(job).__name__} does not define handle(): it is no job.")
    body = manager.codec.encode(job)
    retries = options.retries if asked.retries is None else asked.retries
    delay = asked.delay
    if asked.at is not None:
        delay = seconds(max(0.0, asked.at.timestamp() - manager.clock.time()), "the delay until at()")
    overlap = asked.overlap
    if overlap is None and (key := job.overlap_key()) is not None:
        overlap = overlap_of(job, key)
    if overlap is not None:
        _check_expiry(overlap, manager)
    unique = None
    if asked.unique is not None:
        unique = Unique(key=unique_key(job, body, asked.unique_key), mode=asked.unique, ttl=asked.unique_ttl)
    fields: dict[str, Any] = {
        "id": new_id(),
        "name": options.name,
        "queue": asked.queue or options.queue,
        "body": body,
        "max_attempts": retries + 1,
        "priority": asked.priority or options.priority,
        "delay": delay,
        "expires_in": asked.expires or options.expires,
        "timeout": asked.timeout or options.timeout,
        "unique": unique,
        "overlap": overlap,
        "rate": asked.rate,
        "tags": _all_tags(job, asked),
        "silenced": options.silenced,
    }
    return Envelope(**{**fields, **fixed})


def _all_tags(job: Job, asked: Asked) -> tuple[str, ...]:
    own = job.tags()
    if not (own or asked.tags):
        return job.options.tags
    return tuple(dict.fromkeys((*job.options.tags, *check_tags(tuple(own)), *asked.tags)))


def _check_expiry(overlap: Overlap, manager: Manager) -> None:
    lease = manager.settings.lease_for((manager.store or manager.adapter).capabilities.driver)
    if overlap.expire_after < lease:
        raise InvalidOption(
            f"expire_after={overlap.expire_after:g} is below the lease of {lease:g} s: a job that still runs would "
            "let others in. Use at least the lease; a dead worker's key is free after one lease anyway."
        )


def receipt_for(
    job: Job,
    asked: Asked,
    envelope: Envelope,
    sent: Sent,
    manager: Manager,
    position: int = 0,
    *,
    raising: bool = True,
) -> Receipt[Any]:
    """The receipt of a pushed envelope. Raises DuplicateJob where the dispatch asked for that."""
    pushed = sent.answers[position]
    tx = asked.tx is not None
    via = manager.route.of(envelope, tx=tx).capabilities
    decode = result_adapter(type(job)).validate_json
    if pushed.holder is not None:
        if raising and asked.on_duplicate == "raise" and envelope.unique is not None:
            raise DuplicateJob(pushed.holder, envelope.name, envelope.unique.key)
        return Receipt(id=pushed.holder, status="duplicate", via=via.driver, _manager=manager, _decode=decode)
    status: Literal["done", "queued"] = "done" if envelope.id in sent.ended else "queued"
    return Receipt(
        id=envelope.id, status=status, via=via.driver, in_transaction=tx, _manager=manager, _decode=decode
    )


# --- the functions people call -------------------------------------------------------------------------------


@overload
def dispatch(
    job: FunctionJob[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
) -> Dispatch[R]: ...
@overload
def dispatch(job: FunctionJob[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Dispatch[R]: ...
@overload
def dispatch(job: Handles[R], /) -> Dispatch[R]: ...
@overload
def dispatch(job: Job | Wrapped, /) -> Dispatch[Any]: ...
def dispatch(job: Any, /, *args: Any, **kwargs: Any) -> Dispatch[Any]:
    """Begin to send a job: an instance of a Job class, or a `@job` function and the arguments of the call.

    Nothing is sent before ``await ….send()``. Raises InvalidJob for anything else, TypeError and
    SerializationError for arguments that do not fit the function.
    """
    if isinstance(job, Job | FunctionJob):
        return Dispatch(as_job(job, *args, **kwargs))
    if isinstance(job, Wrapped) and not isinstance(job, type):
        return job.dispatch()
    return Dispatch(as_job(job, *args, **kwargs))


def as_job(job: object, /, *args: Any, **kwargs: Any) -> Job:
    """The Job instance for what `dispatch` takes."""
    if isinstance(job, FunctionJob):
        return job.bind(*args, **kwargs)
    if isinstance(job, Job) and not args and not kwargs:
        return job
    if isinstance(job, Job):
        raise InvalidJob(
            f"the arguments of {type(job).__name__} are its fields: dispatch({type(job).__name__}(…))."
        )
    if isinstance(job, type) and issubclass(job, Job):
        raise InvalidJob(f"{job.__name__} is a class: dispatch an instance, dispatch({job.__name__}(…)).")
    if callable(job):
        raise InvalidJob(
            f"{getattr(job, '__qualname__', job)!s} is a plain callable: decorate a function with @job."
        )
    raise InvalidJob(f"{type(job).__name__} is not a job: use a Job class or a function with @job.")


async def dispatch_many(
    jobs: Iterable[Job | Dispatch[Any]], *, manager: Manager | None = None, chunk: int = 500
) -> list[Receipt[Any]]:
    """Send many jobs, one round trip per `chunk` of them; receipts in their order.

    A job that cannot be sent has status "refused" and its `error`; the others are sent, and a duplicate answers
    with its holder. An error of the backend is raised: the chunks before it are stored.
    """
    given = [item.disarm() if isinstance(item, Dispatch) else (item, Asked()) for item in jobs]
    manager = manager or find_manager()
    if manager is None:
        return [_disabled() for _ in given]
    receipts: list[Receipt[Any]] = []
    for start in range(0, len(given), chunk):
        receipts += await _send_chunk(given[start : start + chunk], manager)
    return receipts


async def _send_chunk(given: Sequence[tuple[object, Asked]], manager: Manager) -> list[Receipt[Any]]:
    receipts: dict[int, Receipt[Any]] = {}
    built: list[tuple[int, Job, Asked, Envelope]] = []
    for position, (item, asked) in enumerate(given):
        try:
            if asked.tx is not None:
                raise InvalidOption(
                    "dispatch_many sends outside any transaction: send() each job that has using()."
                )
            job = as_job(item)
            envelope = build(job, asked, manager)
            manager.check_size(envelope)
            manager.route.of(envelope)
            built.append((position, job, asked, envelope))
        except (NimbusqError, TypeError) as error:
            receipts[position] = Receipt(id="", status="refused", error=error)
    sent = await manager.push([envelope for *_, envelope in built]) if built else Sent([])
    for index, (position, job, asked, envelope) in enumerate(built):
        receipts[position] = receipt_for(job, asked, envelope, sent, manager, index, raising=False)
    return [receipts[position] for position in range(len(given))]
