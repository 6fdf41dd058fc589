"""What a send answers with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from datetime import timedelta
from itertools import chain, repeat
from typing import TYPE_CHECKING, Final, Generic, Literal, TypeVar, cast

from nimbusq.clock import Clock
from nimbusq.driver import Adapter, Cancel, Cancelled, Claim, Ended, JobView, Results
from nimbusq.errors import (
    JobCancelled,
    JobFailed,
    NimbusqError,
    NoManager,
    ResultExpired,
    UnsupportedByDriver,
)
from nimbusq.ids import new_token
from nimbusq.outcome import settlement

if TYPE_CHECKING:
    from nimbusq.manager import Manager

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

Status = Literal["queued", "duplicate", "done", "refused", "disabled"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt(Generic[R_co]):
    """One sent job.

    id: the job's; of a duplicate, the holder's. status: "queued"; "duplicate" (nothing was stored); "done" (the
    inline driver ran it already); "refused" (only from `dispatch_many`, `error` says why); "disabled" (there was
    no manager). via: the driver that carries it.
    """

    id: str
    status: Status
    via: str = ""
    error: Exception | None = None
    in_transaction: bool = False
    _manager: Manager | None = field(default=None, repr=False)
    _decode: Callable[[bytes], R_co] | None = field(default=None, repr=False)

    async def result(self, timeout: float | timedelta | None = None) -> R_co:
        """Wait for the job's end and return what it returned.

        `timeout` is in seconds. Raises JobFailed, JobCancelled, ResultExpired (the store knows nothing of it any
        more, or the result was too large to keep), TimeoutError; NimbusqError for a job whose transaction has not
        been committed.
        """
        if self.error is not None:
            raise self.error
        manager = self._require()
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        results = manager.require("results", "results")
        if self.in_transaction and await self.refresh() is None:
            raise NimbusqError(
                f"job {self.id} is not stored: commit its transaction before awaiting its result."
            )
        if not manager.route.keeps_records(self.via):
            return self._outcome(await self._recorded(results, manager.clock, seconds))
        while True:
            ended = await results.wait(self.id, 60.0 if seconds is None else seconds)
            if ended is not None:
                return self._outcome(ended)
            if seconds is not None:
                raise self._not_ended(seconds)

    async def _recorded(self, results: Results, clock: Clock, seconds: float | None) -> Ended:
        """The record of a job that another driver carries. The store knows nothing of it before its end, so that
        "unknown" means "not yet"."""
        deadline = None if seconds is None else clock.monotonic() + seconds
        for pause in chain((0.02, 0.05, 0.1, 0.2), repeat(0.5)):
            ended = await results.wait(self.id, 0.0)
            if ended is not None and ended.state != "unknown":
                return ended
            left = pause if deadline is None else min(pause, deadline - clock.monotonic())
            if left <= 0:
                break
            await clock.sleep(left)
        raise self._not_ended(seconds or 0.0)

    def _not_ended(self, seconds: float) -> TimeoutError:
        return TimeoutError(f"job {self.id} had not ended after {seconds:g} s.")

    def _outcome(self, ended: Ended) -> R_co:
        match ended.state:
            case "done" if ended.result is not None and self._decode is not None:
                return self._decode(ended.result)
            case "done" if not ended.error:
                return cast("R_co", None)  # only a job that returned None leaves no result and no note
            case "failed":
                raise JobFailed(self.id, ended.error)
            case "cancelled":
                raise JobCancelled(self.id, ended.error or "cancelled")
            case _:
                raise ResultExpired(
                    f"the store knows no result of job {self.id}: {ended.error or 'it has expired, or never was'}."
                )

    async def cancel(self) -> bool:
        """Cancel the job: at once while it is queued, within a third of the lease while it runs.

        False when it has ended already, or is unknown. Raises UnsupportedByDriver where the driver that carries it
        gives no job back once it is sent, whatever store stands beside it.
        """
        manager = self._require()
        if not manager.route.can_cancel(self.via):
            raise UnsupportedByDriver(
                self.via, "cancelling of jobs", "Use .expires(), or a redis or database driver for such jobs."
            )
        return await cancel(manager, self.id)

    async def refresh(self) -> JobView | None:
        """The job as the store sees it now; None when it is unknown."""
        view: JobView | None = await self._require().require("jobs", "looking up jobs").get(self.id)
        return view

    def _require(self) -> Manager:
        if self._manager is None:
            raise NoManager("the job was sent while there was no manager: it was not stored.")
        return self._manager


_WRITERS: Final = {spec.name: getattr(Receipt, spec.name).__set__ for spec in fields(Receipt)}


def receipts_like(sample: Receipt[R]) -> Callable[[str], Receipt[R]]:
    """What makes a receipt that differs from `sample` in its id only, in a third of the time that the class takes to
    set frozen fields."""
    write_id = _WRITERS["id"]
    others = [(write, getattr(sample, name)) for name, write in _WRITERS.items() if name != "id"]

    def receipt_of(job_id: str) -> Receipt[R]:
        receipt: Receipt[R] = object.__new__(Receipt)
        write_id(receipt, job_id)
        for write, value in others:
            write(receipt, value)
        return receipt

    return receipt_of


async def cancel(manager: Manager, job_id: str, reason: str = "cancelled by request") -> bool:
    """Cancel a job by its id; see `Receipt.cancel`."""
    manager.require("jobs", "cancelling jobs")
    for adapter in manager.route.adapters:
        jobs = adapter.stores.jobs
        answer = await jobs.cancel(job_id, token=new_token(), lease=30.0) if jobs else Cancel.UNKNOWN
        if answer is not Cancel.UNKNOWN:
            return await _cancelled(manager, adapter, answer, reason)
    return False


async def _cancelled(manager: Manager, adapter: Adapter, answer: Claim | Cancel, reason: str) -> bool:
    """The adapter knows the job: if it handed it over, end it here."""
    if isinstance(answer, Cancel):
        return answer is Cancel.ASKED
    ending = settlement(answer, Cancelled(reason), history=manager.settings.history_limit > 0)
    if adapter is manager.adapter and manager.store is not None and manager.stores.history and ending.history:
        await manager.stores.history.push([ending.history])  # records live beside this adapter
        ending = ending._replace(history=None)
    settled = (await adapter.settle([ending]))[0]
    await manager.observers.tell("cancelled", answer, reason)
    if settled.batch is not None and settled.batch.finished:
        await manager.observers.tell("batch_finished", settled.batch.state)
    return True
