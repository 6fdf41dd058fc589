"""From a job and what was asked of its dispatch to an envelope, and from the store's answer to a receipt."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Literal

from nimbusq.driver import Pushed
from nimbusq.envelope import Callback, Envelope, Overlap, Rate, Unique, copy_of, envelope_of, template_of
from nimbusq.errors import DuplicateJob, InvalidJob, InvalidOption
from nimbusq.ids import new_id
from nimbusq.jobs import Job, result_decoder
from nimbusq.keys import unique_key
from nimbusq.manager import SURELY_FITS, Manager, Sent
from nimbusq.names import check_key
from nimbusq.options import check_tags
from nimbusq.receipt import Receipt, receipts_like
from nimbusq.retry import seconds

OnDuplicate = Literal["raise", "return", "skip"]


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


AS_IT_IS: Final = Asked()
"""Nothing: the job decides."""


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


def build(
    job: Job,
    asked: Asked,
    manager: Manager,
    *,
    job_id: str | None = None,
    batch_id: str | None = None,
    callback: Callback | None = None,
) -> Envelope:
    """The envelope of a dispatch; its id is a new one unless the caller decides it.

    The only place where a job's own options, its hooks and the builder's calls meet.
    """
    model = type(job)
    if model.options.name not in manager.registry or model.options.abstract:
        raise InvalidJob(f"{model.__name__} does not define handle(): it is no job.")
    body = manager.codec.encode(job)
    if asked is AS_IT_IS and not (batch_id or callback) and (template := _template(model)) is not None:
        return copy_of(template, job_id or new_id(), body)
    overlap = asked.overlap
    if overlap is None and (key := job.overlap_key()) is not None:
        overlap = overlap_of(job, key)
    if overlap is not None:
        _check_expiry(overlap, manager)
    unique = None
    if asked.unique is not None:
        unique = Unique(key=unique_key(job, body, asked.unique_key), mode=asked.unique, ttl=asked.unique_ttl)
    own = {
        "id": job_id or new_id(),
        "body": body,
        "unique": unique,
        "overlap": overlap,
        "batch_id": batch_id,
        "callback": callback,
        "tags": _all_tags(job, asked),
    }
    return envelope_of(**_of_class(model) | _of_dispatch(asked, manager) | own)


@functools.cache
def _template(model: type[Job]) -> Envelope | None:
    """The envelope, but for id and body, of all jobs of this class of which a dispatch asks nothing; None where a
    hook of the class may."""
    if model.tags is not Job.tags or model.overlap_key is not Job.overlap_key:
        return None
    return template_of(**_of_class(model))


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """What plain jobs of one class have in common where the dispatch asks for nothing: all but id and body."""

    template: Envelope
    _queued: Callable[[str], Receipt[Any]]

    def build(self, job: Job, manager: Manager, job_id: str) -> Envelope:
        """The same as `build`, and its size checked. Raises PayloadTooLarge."""
        body = manager.codec.encode(job)
        envelope = copy_of(self.template, job_id, body)
        if len(body) >= SURELY_FITS:
            manager.check_size(envelope)
        return envelope

    def receipt(self, job_id: str, ended: Collection[str]) -> Receipt[Any]:
        """The receipt of one that was pushed: no other job can have held its place."""
        receipt = self._queued(job_id)
        return replace(receipt, status="done") if ended and job_id in ended else receipt


def kind_of(model: type[Job], manager: Manager) -> Kind | None:
    """The kind of a class of which `build` has made an envelope; None where hooks of the class tell jobs apart."""
    template = _template(model)
    if template is None:
        return None
    via = manager.route.of(template).capabilities.driver
    decode = result_decoder(model)
    sample: Receipt[Any] = Receipt(id="", status="queued", via=via, _manager=manager, _decode=decode)
    return Kind(template, receipts_like(sample))


@functools.cache
def _of_class(model: type[Job]) -> dict[str, Any]:
    """What the class says of the envelopes of its jobs."""
    options = model.options
    return {
        "name": options.name,
        "queue": options.queue,
        "max_attempts": options.retries + 1,
        "priority": options.priority,
        "expires_in": options.expires,
        "timeout": options.timeout,
        "tags": options.tags,
        "silenced": options.silenced,
    }


def _of_dispatch(asked: Asked, manager: Manager) -> dict[str, Any]:
    """What the calls of a builder say instead, and of their own."""
    delay = asked.delay
    if asked.at is not None:
        delay = seconds(max(0.0, asked.at.timestamp() - manager.clock.time()), "the delay until at()")
    fields = {
        "queue": asked.queue,
        "max_attempts": None if asked.retries is None else asked.retries + 1,
        "priority": asked.priority,
        "delay": delay,
        "expires_in": asked.expires,
        "timeout": asked.timeout,
        "rate": asked.rate,
    }
    return {name: value for name, value in fields.items() if value is not None}


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
    pushed: Pushed,
    sent: Sent,
    manager: Manager,
    *,
    raising: bool = True,
) -> Receipt[Any]:
    """The receipt of a pushed envelope. Raises DuplicateJob where the dispatch asked for that."""
    tx = asked.tx is not None
    via = manager.route.of(envelope, tx=tx).capabilities
    decode = result_decoder(type(job))
    if pushed.holder is not None:
        if raising and asked.on_duplicate == "raise" and envelope.unique is not None:
            raise DuplicateJob(pushed.holder, envelope.name, envelope.unique.key)
        return Receipt(id=pushed.holder, status="duplicate", via=via.driver, _manager=manager, _decode=decode)
    status: Literal["done", "queued"] = "done" if envelope.id in sent.ended else "queued"
    return Receipt(
        id=envelope.id, status=status, via=via.driver, in_transaction=tx, _manager=manager, _decode=decode
    )
