"""repid: Redis streams, prefetch, grouped acknowledgements. By default nobody reclaims a job that was cut."""

from __future__ import annotations

from repid import Repid, Router
from repid.connections.redis.message_broker import RedisServer

from benchmarks.peer import KINDS, Peer, Place


class RepidPeer(Peer):
    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._app = Repid()
        self._app.servers.register_server("default", RedisServer(place.url), is_default=True)
        self._connection = self._app.servers.default.connection()

    async def connect(self) -> None:
        await self._connection.__aenter__()

    async def aclose(self) -> None:
        await self._connection.__aexit__(None, None, None)

    async def send(self, kind: str, i: int) -> None:
        await self._app.send_message_json(channel=kind, payload={"i": i}, headers={"topic": kind})

    async def work(self, concurrency: int) -> None:
        router = Router()
        for kind, job in KINDS.items():
            router.actor(channel=kind)(job)
        self._app.include_router(router)
        async with self._connection:
            await self._app.run_worker(tasks_limit=concurrency)
