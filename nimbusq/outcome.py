"""What follows from an outcome: the one place that knows what a job's end means for its batch and chain."""

from __future__ import annotations

import hashlib
import traceback
from dataclasses import replace
from pathlib import PurePath
from typing import Final, Literal, NamedTuple

from nimbusq.driver import (
    BatchRecord,
    Cancelled,
    Claim,
    Done,
    Failed,
    FailedRecord,
    HistoryRow,
    Outcome,
    Settlement,
)
from nimbusq.envelope import Callback, ChainRest, Envelope, Unreadable
from nimbusq.errors import RemoteError, UnreadableJob
from nimbusq.ids import derived_id

MAX_TRACEBACK: Final = 16 * 1024
MAX_ERROR: Final = 2_000


class RunFacts(NamedTuple):
    """What a worker knows of a run besides its outcome; duration in seconds."""

    duration: float = 0.0
    traceback: str = ""
    fingerprint: str = ""
    worker: str = ""


_NOTHING_KNOWN: Final = RunFacts()


def settlement(
    claim: Claim,
    outcome: Outcome,
    *,
    facts: RunFacts = _NOTHING_KNOWN,
    catch: Envelope | None = None,
    history: bool = True,
    result_ttl: float = 3600.0,
) -> Settlement:
    """The claim's outcome with everything that follows from it.

    catch: the template of the batch's catch callback, where the job is a member that failed.
    """
    if not isinstance(outcome, Done | Failed | Cancelled):
        return Settlement(claim=claim, outcome=outcome)
    header = header_of(claim)
    return Settlement(
        claim=claim,
        outcome=outcome,
        push=_followers(header, outcome, catch),
        record=batch_record(header, outcome),
        failed=_failed_record(claim, header, outcome, facts) if isinstance(outcome, Failed) else None,
        history=_history_row(claim, header, outcome, facts) if history else None,
        result_ttl=result_ttl,
    )


def header_of(claim: Claim) -> Envelope | None:
    """The claim's envelope, or as much of it as could be read."""
    envelope = claim.envelope
    return envelope.header if isinstance(envelope, Unreadable) else envelope


def batch_record(header: Envelope | None, outcome: Outcome) -> BatchRecord | None:
    """How the job counts in its batch. A chain counts once: when its last link is done, or when one is not."""
    if header is None or header.batch_id is None:
        return None
    if isinstance(outcome, Done):
        if header.chain is not None and header.chain.rest:
            return None
        return BatchRecord(batch_id=header.batch_id, member=header.member_id, failed=False)
    error = f"{header.name}: {error_text(outcome)}"
    return BatchRecord(batch_id=header.batch_id, member=header.member_id, failed=True, error=error)


def error_text(outcome: Outcome) -> str:
    """What went wrong, as one text; of a success, why its result will not be found (any more)."""
    match outcome:
        case Failed(error=error):
            return error
        case Cancelled(reason=reason):
            return reason
        case Done(result=result, note=note):
            return note or ("" if result is None else "its result has expired")
        case _:
            return ""


def _followers(header: Envelope | None, outcome: Outcome, catch: Envelope | None) -> tuple[Envelope, ...]:
    if header is None:
        return ()
    match outcome:
        case Done():
            link = next_link(header)
            return () if link is None else (link,)
        case Failed(error=error):
            followers = [_catch_job(catch, header, error), _chain_failure(header, error)]
            return tuple(follower for follower in followers if follower is not None)
        case _:
            return ()


def next_link(header: Envelope) -> Envelope | None:
    """The chain's next link; its id is derived from the chain's, so that it is queued once whatever is repeated."""
    chain = header.chain
    if chain is None or not chain.rest:
        return None
    link = Envelope.from_text(chain.rest[0])
    if isinstance(link, Unreadable):
        raise UnreadableJob(f"link {chain.index + 1} of chain {chain.id}: {link.error}")
    rest = replace(chain, index=chain.index + 1, rest=chain.rest[1:])
    return replace(
        link,
        id=derived_id(chain.id, rest.index),
        chain=rest,
        batch_id=header.batch_id,
        trace=header.trace,
    )


def _catch_job(catch: Envelope | None, header: Envelope, error: str) -> Envelope | None:
    if catch is None or header.batch_id is None:
        return None
    callback = Callback(
        kind="catch", of=header.batch_id, job_id=header.id, job_name=header.name, error=error[:MAX_ERROR]
    )
    return replace(catch, id=derived_id(header.batch_id, f"catch:{header.id}"), callback=callback)


def _chain_failure(header: Envelope, error: str) -> Envelope | None:
    chain: ChainRest | None = header.chain
    if chain is None or chain.on_failure is None:
        return None
    envelope = Envelope.from_text(chain.on_failure)
    if isinstance(envelope, Unreadable):
        return None
    callback = Callback(
        kind="on_failure", of=chain.id, job_id=header.id, job_name=header.name, error=error[:MAX_ERROR]
    )
    return replace(envelope, id=derived_id(chain.id, "on_failure"), callback=callback)


_STATES: Final[dict[type, Literal["done", "failed", "cancelled"]]] = {
    Done: "done",
    Failed: "failed",
    Cancelled: "cancelled",
}


def _history_row(claim: Claim, header: Envelope | None, outcome: Outcome, facts: RunFacts) -> HistoryRow:
    return HistoryRow(
        id=claim.id,
        queue=claim.queue,
        name=header.name if header else "",
        state=_STATES[type(outcome)],
        attempt=claim.attempt,
        waited=claim.waited,
        duration=facts.duration,
        error=error_text(outcome)[:MAX_ERROR],
        worker=facts.worker,
        tags=header.tags if header else (),
        silenced=header.silenced if header else False,
    )


def _failed_record(claim: Claim, header: Envelope | None, outcome: Failed, facts: RunFacts) -> FailedRecord:
    envelope = claim.envelope
    name = header.name if header else ""
    return FailedRecord(
        id=claim.id,
        queue=claim.queue,
        name=name,
        wire=envelope.raw if isinstance(envelope, Unreadable) else envelope.to_wire(),
        error=outcome.error[:MAX_ERROR],
        kind=outcome.kind,
        traceback=facts.traceback,
        fingerprint=facts.fingerprint or fingerprint(name, outcome.kind),
        attempts=claim.attempt,
        max_attempts=header.max_attempts if header else max(1, claim.attempt),
    )


def described(error: BaseException) -> str:
    """An error as one text, whatever its own ``__str__`` does."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  # an error's own __str__ may raise anything
        text = "(its text cannot be read)"
    return storable(f"{kind_of(error)}: {text}" if text else kind_of(error))


def kind_of(error: BaseException) -> str:
    """The name of the error's class, also of one that was raised in another process."""
    return error.kind if isinstance(error, RemoteError) else type(error).__name__


def storable(text: str) -> str:
    """The text without what a database refuses: NUL characters and lone surrogates."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()


def fingerprint(name: str, kind: str, error: BaseException | None = None) -> str:
    """Equal for failures of one cause: job name, error class, innermost frame outside installed libraries."""
    where = ""
    if error is not None:
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if "site-packages" not in frame.filename] or frames
        if own:
            where = f"{PurePath(own[-1].filename).name}:{own[-1].name}"
    return hashlib.sha256(f"{name}\0{kind}\0{where}".encode()).hexdigest()[:16]


def traceback_text(error: BaseException) -> str:
    """The traceback, its end kept where it is longer than 16 KiB."""
    text = error.traceback if isinstance(error, RemoteError) else "".join(traceback.format_exception(error))
    text = storable(text)
    return text if len(text) <= MAX_TRACEBACK else "…" + text[-MAX_TRACEBACK:]
