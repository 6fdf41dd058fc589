"""Push: a job enters the store once, and takes its unique key with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, TypeAlias

from nimbusq.driver import Pushed
from nimbusq.envelope import Envelope, decode, wires_of_copies
from nimbusq_database.job_row import columns
from nimbusq_database.transaction import Transaction

Job: TypeAlias = Mapping[str, Any]
"""A job's columns, as `job_row.columns` makes them."""


_ALIKE: Final = ("queue", "name", "priority", "delay", "expires_in", "max_attempts")
"""What jobs of one kind have in common, by the names of their columns."""
_kind = attrgetter(*_ALIKE, "unique", "overlap", "rate", "batch_id")


async def push(
    tx: Transaction,
    envelopes: Sequence[Envelope],
    carried: Callable[[str], str | None] | None = None,
    *,
    new: bool = False,
) -> list[Pushed]:
    """Store the jobs whose id is unknown and whose unique key is free; answers in order.

    carried: see `Dialect.carried`; None announces nothing here. new: see `Dialect.hopeful`; raises AlreadyThere, with
    nothing stored, where an id is known.
    """
    if not envelopes:
        return []
    kind = _kind(envelopes[0])
    keyed = any(part is not None for part in kind[len(_ALIKE) :])
    wires = None if keyed else _wires_of_alike(envelopes, kind)
    if wires is None:
        return await push_jobs(tx, [columns(envelope) for envelope in envelopes])
    rows = [{"id": one.id, "wire": wire} for one, wire in zip(envelopes, wires, strict=True)]
    jobs = [columns(envelope) for envelope in envelopes] if tx.audited else []
    known = await _known(tx, jobs) if jobs else frozenset()
    now = await tx.audit_time()
    await _insert_alike(tx, rows, dict(zip(_ALIKE, kind, strict=False)), carried, new=new)
    if jobs:
        _note(tx, {job["id"]: job for job in jobs if job["id"] not in known}.values(), now)
    return [Pushed(one.id) for one in envelopes]


def _wires_of_alike(envelopes: Sequence[Envelope], kind: tuple[Any, ...]) -> list[bytes] | None:
    """The wire forms of jobs that are all of one kind; None where they are not."""
    wires = wires_of_copies(envelopes)
    if wires is None and not any(map(kind.__ne__, map(_kind, envelopes))):  # in C: two thirds of the time
        wires = [one.to_wire() for one in envelopes]
    return wires


async def _insert_alike(
    tx: Transaction,
    rows: Sequence[Mapping[str, Any]],
    shared: Mapping[str, Any],
    carried: Callable[[str], str | None] | None,
    *,
    new: bool,
) -> None:
    """Insert jobs that differ in id and envelope only. One left out is there already: there is no other reason."""
    queue = shared["queue"]
    notice = carried(queue) if carried else None
    await tx.insert("jobs_push_new" if new else "jobs_push_alike", rows, notice=notice, **shared)
    tx.topics.add(queue)
    if notice is not None:
        tx.told.add(queue)


async def push_jobs(tx: Transaction, jobs: Sequence[Job]) -> list[Pushed]:
    """The same for jobs that are columns already."""
    if not jobs:
        return []
    locked = any(job["unique_lock"] for job in jobs)
    known = await _known(tx, jobs) if locked or tx.audited else frozenset()
    fresh = [job for job in jobs if job["id"] not in known]
    now = await tx.audit_time()
    holders = await _take_locks(tx, fresh) if locked else {}
    holders |= await _insert(tx, [job for job in fresh if job["id"] not in holders])
    stored = {job["id"]: job for job in fresh if job["id"] not in holders}
    tx.topics.update(job["queue"] for job in stored.values())
    if tx.audited:
        _note(tx, stored.values(), now)
    return [Pushed(job["id"], holders.get(job["id"])) for job in jobs]


async def _known(tx: Transaction, jobs: Sequence[Job]) -> frozenset[str]:
    return frozenset(row["id"] for row in await tx.fetch("jobs_known", ids=[job["id"] for job in jobs]))


async def _take_locks(tx: Transaction, jobs: Sequence[Job]) -> dict[str, str]:
    """Take the unique locks; answer who holds those that were taken, by the id of the job left out."""
    wanted: dict[str, Job] = {}
    for job in jobs:
        if job["unique_lock"]:
            wanted.setdefault(job["unique_lock"], job)
    if not wanted:
        return {}
    locks = [
        {"digest": lock, "token": wanted[lock]["id"], "ttl": wanted[lock]["lock_ttl"]}
        for lock in sorted(wanted)
    ]
    await tx.insert("locks_take", locks)
    found = await tx.fetch("locks_held", digests=list(wanted))
    held: dict[str, str] = {row["digest"]: row["token"] for row in found}
    holders = {job["id"]: held[job["unique_lock"]] for job in jobs if job["unique_lock"] in held}
    return {job_id: holder for job_id, holder in holders.items() if holder != job_id}


async def _insert(tx: Transaction, jobs: list[Job]) -> dict[str, str]:
    """Insert what is not there; answer who holds the unique slots, by the id of the job left out."""
    holders: dict[str, str] = {}
    while jobs and await tx.insert("jobs_push", jobs) < len(jobs):
        jobs, found = await _left_out(tx, jobs)
        holders |= found
    return holders


async def _left_out(tx: Transaction, jobs: Sequence[Job]) -> tuple[list[Job], dict[str, str]]:
    """Jobs whose slot's holder is gone by now, to insert again; and the holders of the others' slots."""
    known = await _known(tx, jobs)
    missing = [job for job in jobs if job["id"] not in known]
    digests = [job["unique_digest"] for job in missing if job["unique_digest"]]
    if not digests:
        return [], {}
    found = {row["digest"]: row["id"] for row in await tx.fetch("slot_holders", digests=digests)}
    holders = {job["id"]: found[job["unique_digest"]] for job in missing if job["unique_digest"] in found}
    return [job for job in missing if job["id"] not in holders], holders


def _note(tx: Transaction, jobs: Iterable[Job], now: float) -> None:
    for job in jobs:
        extra: dict[str, object] = {"run_at": now + job["delay"], "max_attempts": job["max_attempts"]}
        if job["unique_digest"]:
            extra["unique"] = job["unique_digest"]
        if job["batch_id"]:
            extra |= {"batch": job["batch_id"], "member": job["member_id"]}
        envelope = decode(job["wire"])
        if isinstance(envelope, Envelope) and envelope.chain:
            extra |= {"chain": envelope.chain.id, "index": envelope.chain.index}
        if isinstance(envelope, Envelope) and envelope.callback:
            extra |= {"callback": envelope.callback.kind, "of": envelope.callback.of}
        tx.note("push", job["id"], "", 0, at=now, **extra)
