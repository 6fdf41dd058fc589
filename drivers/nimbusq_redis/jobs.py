"""Looking at single jobs and queues, and controlling them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, cast

from nimbusq.driver import Cancel, Claim, JobState, JobView
from nimbusq.envelope import Envelope, Unreadable, decode, digest
from nimbusq_redis.claims import read_claims, read_record
from nimbusq_redis.cursors import refuse, scan
from nimbusq_redis.link import Link
from nimbusq_redis.records import read_failed, read_history
from nimbusq_redis.refs import ref, unref

_PLACES: Final = ("leased", "ready", "delayed", "paused")
_BAND: Final = 9e14
_BAND_EPOCH: Final = 1735689600e6
"""How a ready score tells the time; see lua/lib/queues.lua."""


class RedisJobs:
    """`nimbusq.driver.Jobs` in Redis."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def get(self, job_id: str) -> JobView | None:
        (found,) = await self._link.run("job_get", ref(job_id))
        return _view(job_id, found)

    async def list(
        self, *, queue: str | None = None, state: JobState | None = None, cursor: str = "", limit: int = 50
    ) -> tuple[Sequence[JobView], str]:
        """Of one queue: what runs, then what is ready, delayed, paused, each in its order. Of all queues: in none."""
        if queue is None:
            return await self._scan(state, cursor, limit)
        place, _, score = cursor.partition(":")
        places: list[str] = [state] if state else list(_PLACES)
        if cursor and place not in places:
            refuse(cursor)
        if state not in {None, *_PLACES}:
            return [], ""
        found: list[JobView] = []
        for at in places[places.index(place) if place else 0 :]:
            now, following, *fields = await self._link.run("job_list", at, queue, score, limit - len(found))
            found += [
                _live(unref(fields[i]), queue, at, fields[i + 1], float(fields[i + 2]), fields[i + 3], now)
                for i in range(0, len(fields), 4)
            ]
            if following:
                return found, f"{at}:{following.decode()}"
            score = ""
            if len(found) >= limit and at != places[-1]:
                return found, f"{places[places.index(at) + 1]}:"
        return found, ""

    async def _scan(self, state: JobState | None, cursor: str, limit: int) -> tuple[Sequence[JobView], str]:
        """Jobs of every queue."""
        found: list[JobView] = []
        async for refs, portion, skip in scan(self._link, "HSCAN", "jobs", cursor):
            views = await self._link.run("job_get", *refs[skip:]) if refs[skip:] else []
            for seen, (stored, fields) in enumerate(zip(refs[skip:], views, strict=True), skip):
                if len(found) == limit:
                    return found, f"{portion}:{seen}"
                view = _view(unref(stored), fields)
                if view and (state is None or view.state == state):
                    found.append(view)
        return found, ""

    async def cancel(self, job_id: str, *, token: str, lease: float) -> Claim | Cancel:
        reply = await self._link.run("job_cancel", ref(job_id), token, lease)
        if isinstance(reply, bytes):
            return Cancel(reply.decode())
        return read_claims(reply, 1, reply[0], token)[0]

    async def pause(self, job_id: str) -> bool:
        return bool(await self._link.run("job_pause", ref(job_id), "pause"))

    async def resume(self, job_id: str) -> bool:
        return bool(await self._link.run("job_pause", ref(job_id), "resume"))

    async def pause_queue(self, queue: str) -> bool:
        return bool(await self._link.run("queue_pause", queue, "pause"))

    async def resume_queue(self, queue: str) -> bool:
        return bool(await self._link.run("queue_pause", queue, "resume"))

    async def paused_queues(self) -> Sequence[str]:
        return sorted(
            name.decode() for name in await self._link.command("SMEMBERS", self._link.key("paused"))
        )

    async def holders(self, name: str, overlap_key: str) -> Sequence[str]:
        return [unref(stored) for stored in await self._link.run("holders", digest(name, overlap_key))]

    async def unique_holder(self, name: str, key: str) -> str | None:
        stored = await self._link.command("HGET", self._link.key("slots"), digest(name, key))
        return unref(stored) if stored is not None else None


def _view(job_id: str, fields: Sequence[Any]) -> JobView | None:
    match fields:
        case [b"live", record, queue, place, score, state, now]:
            return _live(job_id, queue.decode(), place.decode(), record, float(score), state, now)
        case [b"failed", text]:
            return _failed(job_id, text)
        case [b"history", text]:
            return _ended(job_id, text)
        case _:
            return None


def _live(
    job_id: str, queue: str, place: str, record: bytes, score: float, state_text: bytes, now: int
) -> JobView:
    state: dict[str, Any] = json.loads(state_text)
    leased = place == "leased"
    due = state.get("due", now) if leased else score
    if place == "ready":
        due = score % _BAND + _BAND_EPOCH
    envelope = read_record(record, job_id)
    shown = "ready" if place == "delayed" and due <= now else place
    return JobView(
        id=job_id,
        queue=queue,
        name=_name(envelope),
        state=cast("JobState", shown),
        attempt=state["attempt"],
        releases=state.get("releases", 0),
        reclaims=state.get("reclaims", 0),
        run_at=due / 1e6,
        lease_until=score / 1e6 if leased else None,
        envelope=envelope,
        error=state.get("error", ""),
    )


def _name(envelope: Envelope | Unreadable) -> str:
    header = envelope.header if isinstance(envelope, Unreadable) else envelope
    return header.name if header else "unreadable"


def _failed(job_id: str, text: bytes) -> JobView:
    record = read_failed(job_id, 0.0, text)
    return JobView(
        id=job_id,
        queue=record.queue,
        name=record.name,
        state="failed",
        attempt=record.attempts,
        envelope=decode(record.wire),
        error=record.error,
    )


def _ended(job_id: str, text: bytes) -> JobView:
    row = read_history(job_id, 0.0, text)
    return JobView(
        id=job_id, queue=row.queue, name=row.name, state=row.state, attempt=row.attempt, error=row.error
    )
