"""The failed store, in bulk: retry many, with an account of what could not be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from nimbusq.driver import FailedStore
from nimbusq.manager import Manager, get_manager

PAGE: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Retried:
    """retried: how many were put back. missing: ids without a failed record (any more). conflicts: id -> the
    active job that holds its unique key; the record stays."""

    retried: int = 0
    missing: tuple[str, ...] = ()
    conflicts: Mapping[str, str] = field(default_factory=dict)


async def retry(job_ids: Iterable[str], *, manager: Manager | None = None) -> Retried:
    """Put failed jobs back on their queues, each in one step: same id, meta, batch and chain, attempts 0."""
    manager = manager or get_manager()
    store: FailedStore = manager.require("failed", "a failed store")
    retried, missing, conflicts = 0, [], {}
    for job_id in job_ids:
        pushed = await store.retry(job_id)
        if pushed is None:
            missing.append(job_id)
        elif pushed.holder is not None:
            conflicts[job_id] = pushed.holder
        else:
            retried += 1
    if manager.adapter.capabilities.inline:
        await manager.run_inline()
    return Retried(retried=retried, missing=tuple(missing), conflicts=conflicts)


async def retry_matching(
    *, queue: str | None = None, fingerprint: str | None = None, manager: Manager | None = None
) -> Retried:
    """Retry every failed job (of a queue, of one cause), page by page; jobs that fail again meanwhile are left."""
    manager = manager or get_manager()
    store: FailedStore = manager.require("failed", "a failed store")
    job_ids: list[str] = []
    cursor = ""
    while True:
        records, cursor = await store.page(cursor=cursor, limit=PAGE, queue=queue, fingerprint=fingerprint)
        job_ids += [record.id for record in records]
        if not cursor:
            return await retry(job_ids, manager=manager)
