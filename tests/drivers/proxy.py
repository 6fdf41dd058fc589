"""A TCP proxy that loses what it is told to lose."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit, urlunsplit


@dataclass
class Proxy:
    """Between a client and a server.

    lose_reply_to: the reply to the next request that has these bytes is swallowed, and its connection cut.
    requests: how often clients sent something; a small request is one.
    frozen: nothing passes in either direction, no connection is closed: a half-open link.
    """

    host: str
    port: int
    lose_reply_to: bytes = b""
    lost: int = 0
    requests: int = 0
    frozen: bool = False
    address: tuple[str, int] = ("", 0)
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    def cut(self) -> int:
        """Cut every connection; how many there were."""
        writers = list(self._writers)
        for writer in writers:
            writer.transport.abort()
        return len(writers)

    def leads_to(self, url: str) -> str:
        """The URL of this proxy that leads to what `url` names at the server."""
        parts = urlsplit(url)
        credentials, at, _ = parts.netloc.rpartition("@")
        host, port = self.address
        return urlunsplit(parts._replace(netloc=f"{credentials}{at}{host}:{port}"))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One client's connection, until either side ends it."""
        try:
            up_reader, up_writer = await asyncio.open_connection(self.host, self.port)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, up_writer}
        doomed = False

        def on_request(data: bytes) -> bool:
            nonlocal doomed
            self.requests += 1
            if self.lose_reply_to and self.lose_reply_to in data:
                self.lose_reply_to, doomed = b"", True
            return not self.frozen

        def on_reply(_: bytes) -> bool:
            if doomed:
                self.lost += 1
                writer.transport.abort()
            return not doomed and not self.frozen

        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_pipe(reader, up_writer, on_request))
                group.create_task(_pipe(up_reader, writer, on_reply))
        finally:
            self._writers -= {writer, up_writer}


async def _pipe(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passes: Callable[[bytes], bool]
) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65536):
            if passes(data):
                writer.write(data)
                await writer.drain()
    writer.close()


@asynccontextmanager
async def proxied(host: str, port: int) -> AsyncIterator[Proxy]:
    """A proxy on a free port of this machine."""
    proxy = Proxy(host, port)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.address = server.sockets[0].getsockname()[:2]
    try:
        yield proxy
    finally:
        server.close()
        proxy.cut()
        await asyncio.sleep(0)  # let the connections see that they are cut
        await server.wait_closed()
