"""Why does a job not run? Every gate that it waits behind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from nimbusq.driver import Jobs, JobView, Locker
from nimbusq.envelope import Envelope, Unique, digest
from nimbusq.errors import JobNotFound
from nimbusq.keys import LOCK_KEY
from nimbusq.manager import Manager, get_manager

GateName = Literal["due", "paused", "queue paused", "unique", "overlap", "rate", "worker", "position"]


@dataclass(frozen=True, slots=True)
class Gate:
    """One thing that holds a job back."""

    gate: GateName
    text: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """A job's state and the gates that it waits behind; none for a job that runs, has ended or is simply next.

    A failed job has the gate of its unique key, where another job would refuse its retry.
    """

    id: str
    state: str
    gates: tuple[Gate, ...] = ()


async def explain(job_id: str, *, manager: Manager | None = None) -> Explanation:
    """Say what a job waits behind: its due time, a pause, the holders of its keys, rates, the lack of a worker.

    Raises JobNotFound, and UnsupportedByDriver where the driver cannot look at jobs.
    """
    manager = manager or get_manager()
    jobs: Jobs = manager.require("jobs", "explaining jobs")
    view = await jobs.get(job_id)
    if view is None:
        raise JobNotFound(f"the store knows no job {job_id}.")
    if view.state == "failed":
        return Explanation(job_id, view.state, tuple(await _taken_key(view, jobs, manager)))
    if view.state not in ("delayed", "ready", "paused"):
        return Explanation(job_id, view.state)
    gates = [
        *_time(view),
        *await _pauses(view, jobs),
        *await _overlap(view, jobs),
        *_rate(view, manager),
        *await _workers(view, manager),
    ]
    return Explanation(job_id, view.state, tuple(gates))


def _time(view: JobView) -> list[Gate]:
    if view.state != "delayed":
        return []
    why = (
        "after a failed run"
        if view.attempt
        else "after it was put back"
        if view.releases
        else "as it was sent"
    )
    return [Gate("due", f"due at {view.run_at:.3f} (epoch seconds), {why}")]


async def _pauses(view: JobView, jobs: Jobs) -> list[Gate]:
    gates = [Gate("paused", "the job is paused; resume it")] if view.state == "paused" else []
    if view.queue in await jobs.paused_queues():
        gates.append(Gate("queue paused", f"queue {view.queue} is paused; resume it"))
    return gates


async def _taken_key(view: JobView, jobs: Jobs, manager: Manager) -> list[Gate]:
    envelope = view.envelope
    if not isinstance(envelope, Envelope) or envelope.unique is None:
        return []
    holder = await _unique_holder(envelope.name, envelope.unique, jobs, manager)
    if holder is None:
        return []
    key = envelope.unique.key
    return [Gate("unique", f"unique key {key!r} is held by {holder}: until it ends a retry is refused")]


async def _unique_holder(name: str, unique: Unique, jobs: Jobs, manager: Manager) -> str | None:
    if unique.mode == "slot":
        return await jobs.unique_holder(name, unique.key)
    locker: Locker = manager.require("locker", "unique locks")
    return await locker.holder(LOCK_KEY + digest(name, unique.key))


async def _overlap(view: JobView, jobs: Jobs) -> list[Gate]:
    envelope = view.envelope
    if not isinstance(envelope, Envelope) or envelope.overlap is None:
        return []
    holders = [
        holder for holder in await jobs.holders(envelope.name, envelope.overlap.key) if holder != view.id
    ]
    if len(holders) < envelope.overlap.limit:
        return []
    return [Gate("overlap", f"overlap key {envelope.overlap.key!r} is held by {', '.join(holders)}")]


def _rate(view: JobView, manager: Manager) -> list[Gate]:
    envelope = view.envelope
    gates = []
    if (limit := manager.settings.rate_of(view.queue)) is not None:
        gates.append(Gate("rate", f"queue {view.queue} starts at most {limit.per_second:g} jobs a second"))
    if isinstance(envelope, Envelope) and envelope.rate is not None:
        rate = envelope.rate
        gates.append(Gate("rate", f"rate key {rate.key!r} starts at most {rate.per_second:g} jobs a second"))
    return gates


async def _workers(view: JobView, manager: Manager) -> list[Gate]:
    workers = manager.stores.workers
    if workers is None:
        return []
    serving = [report for report in await workers.list() if view.queue in report.queues]
    if not serving:
        return [Gate("worker", f"no worker serves queue {view.queue}")]
    if not any(view.name in report.names for report in serving):
        return [
            Gate(
                "worker",
                f"none of the {len(serving)} workers of queue {view.queue} knows a job {view.name!r}",
            )
        ]
    busy = [report for report in serving if len(report.running) >= report.concurrency]
    if len(busy) == len(serving) and view.state == "ready":
        return [Gate("position", f"all slots of the {len(serving)} workers of queue {view.queue} are taken")]
    return []
