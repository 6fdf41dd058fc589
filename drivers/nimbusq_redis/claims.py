"""Claims on the wire: what a `Want` tells lua/claim.lua, and what that answers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from nimbusq.driver import Claim, Claimed, Ending, Lane, Lost
from nimbusq.envelope import Envelope, Unreadable, decode
from nimbusq_redis.entries import rate_fields
from nimbusq_redis.refs import unref
from nimbusq_redis.wires import restore

_CLAIM_FIELDS: Final = 9
_LOST_FIELDS: Final = 4
_HEAD: Final = 5
_ENDINGS: Final = {ending.value.encode(): ending for ending in Ending}
_MISSING: Final = Unreadable(raw=b"", error="the stored payload is missing")


@dataclass(frozen=True, slots=True)
class Look:
    """What one look into the store found.

    next_in: seconds until something gets due; None where nothing is known to. watches: this worker is the one
    that must look then.
    """

    claimed: Claimed
    next_in: float | None
    watches: bool


@lru_cache(maxsize=256)
def lane_args(lanes: tuple[Lane, ...]) -> tuple[str, ...]:
    """Lanes as the script takes them. A worker sends the same few over and over."""
    flat: list[str] = []
    for lane in lanes:
        flat += (lane.queue, str(lane.limit), json.dumps(rate_fields(lane.rate)) if lane.rate else "")
    return tuple(flat)


def read_look(reply: Sequence[Any], token: str) -> Look:
    """The script's whole answer."""
    now, next_at, watches, rate_wait, lost_count = reply[:_HEAD]
    first_claim = _HEAD + lost_count * _LOST_FIELDS
    lost = [_read_lost(*reply[at : at + _LOST_FIELDS]) for at in range(_HEAD, first_claim, _LOST_FIELDS)]
    claims = read_claims(reply, first_claim, now, token)
    retry_after = rate_wait / 1e6 if rate_wait else None
    next_in = max(0, next_at - now) / 1e6 if next_at else None
    return Look(Claimed(claims, lost, retry_after), next_in, watches == b"1")


def read_claims(reply: Sequence[Any], first: int, now: int, token: str) -> list[Claim]:
    """The claims that stand in a reply from `first` on."""
    claims = []
    for at in range(first, len(reply), _CLAIM_FIELDS):
        queue, ref, record, attempt, releases, fence, due, reclaims, ending = reply[at : at + _CLAIM_FIELDS]
        job_id = unref(ref)
        claims.append(
            Claim(
                id=job_id,
                queue=queue.decode(),
                envelope=read_record(record, job_id),
                attempt=attempt,
                token=token,
                releases=releases,
                fence=fence,
                run_at=due / 1e6,
                waited=max(0, now - due) / 1e6,
                reclaimed=reclaims > 0,
                ending=_ENDINGS[ending] if ending else None,
            )
        )
    return claims


def read_record(record: bytes, job_id: str) -> Envelope | Unreadable:
    """The envelope of a stored record, or why there is none."""
    return decode(restore(record[record.index(b"\n") + 1 :], job_id)) if record else _MISSING


def _read_lost(queue: bytes, ref: bytes, record: bytes, attempt: int) -> Lost:
    job_id = unref(ref)
    return Lost(id=job_id, queue=queue.decode(), envelope=read_record(record, job_id), attempt=attempt)
