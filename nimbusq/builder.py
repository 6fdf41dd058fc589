"""How a job gets in: `dispatch(job).delay(60).send()`."""

from __future__ import annotations

import warnings
from collections.abc import Coroutine
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Generic, Never, ParamSpec, Protocol, TypeGuard, TypeVar, overload, runtime_checkable

from nimbusq.bridge import refuse_in_loop, wait_for
from nimbusq.building import AS_IT_IS, Asked, OnDuplicate, build, overlap_of, receipt_for
from nimbusq.envelope import Rate
from nimbusq.errors import InvalidJob, InvalidOption, NoManager
from nimbusq.ids import new_id
from nimbusq.jobs import FunctionJob, Job
from nimbusq.manager import Manager, find_manager
from nimbusq.names import check_key
from nimbusq.options import check_priority, check_queue, check_retries, check_tags
from nimbusq.receipt import Receipt
from nimbusq.retry import seconds

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Handles(Protocol[R_co]):
    """A Job whose ``async def handle`` returns an R."""

    async def handle(self) -> R_co: ...


@runtime_checkable
class Wrapped(Protocol):
    """Something that stands for a job with options, such as `nimbusq.overlap.WithoutOverlapping`."""

    def dispatch(self) -> Dispatch[Any]: ...


class UnsentDispatchWarning(RuntimeWarning):
    """A `dispatch(...)` was dropped without `.send()`: nothing was queued."""


class Dispatch(Generic[R]):
    """A job and how it is to be sent. Every call returns a copy; nothing happens before `send()`."""

    __slots__ = ("_armed", "_asked", "_job", "_manager")

    def __init__(self, job: Job, asked: Asked = AS_IT_IS, manager: Manager | None = None) -> None:
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
            return not_sent()
        envelope = build(self._job, self._asked, manager)
        sent = await manager.push([envelope], tx=self._asked.tx)
        return receipt_for(self._job, self._asked, envelope, sent.answers[0], sent, manager)

    def send_sync(self) -> Receipt[R]:
        """`send` for code that is not async: a handler in a thread, or a program that called
        `nimbusq.bridge.boot_sync`. Refused inside an event loop."""
        refuse_in_loop("send_sync()", "await send()")
        manager = self._manager or find_manager()
        self._armed = False
        return not_sent() if manager is None else wait_for(manager, self.send())


def not_sent() -> Receipt[Any]:
    """The receipt of a job that no manager takes. Raises NoManager in strict mode."""
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
    if _is_job(job) and not args and not kwargs:
        return Dispatch(job)
    if not _is_job(job) and not isinstance(job, FunctionJob | type) and isinstance(job, Wrapped):
        return job.dispatch()
    return Dispatch(as_job(job, *args, **kwargs))


def _is_job(job: object) -> TypeGuard[Job]:
    """isinstance, without the way that pydantic's metaclass takes for it."""
    return Job in type(job).__mro__


def as_job(job: object, /, *args: Any, **kwargs: Any) -> Job:
    """The Job instance for what `dispatch` takes."""
    if isinstance(job, FunctionJob):
        return job.bind(*args, **kwargs)
    if _is_job(job) and not args and not kwargs:
        return job
    if _is_job(job):
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
