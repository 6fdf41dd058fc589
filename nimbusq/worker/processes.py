"""Handlers in processes of their own (``runs_in="process"``), for code that keeps the interpreter busy.

A child is this Python running `nimbusq.worker.child`. It is told where the job is defined and gets the envelope
as it was stored; what comes back is JSON. Nothing is pickled, and no class is looked up by a name that travelled
in the job. A child is used again for the next job, and killed when its run is cut.
"""

from __future__ import annotations

import asyncio
import json
import struct
import sys
from typing import Any, Final

from nimbusq.driver import Claim
from nimbusq.envelope import Envelope
from nimbusq.errors import ConfigError, Fail, Release, RemoteError
from nimbusq.jobs import Job, result_adapter

_LENGTH: Final = struct.Struct(">I")


class Processes:
    """Owned by the worker's event loop: at most as many children as runs at once."""

    def __init__(self) -> None:
        self._idle: list[asyncio.subprocess.Process] = []

    async def call(self, job: Job, claim: Claim) -> Any:
        """Run the job in a child. Raises what the handler raised: Release, Fail, or RemoteError for any other.

        A cancel kills the child: there is nothing in it that could clean up.
        """
        child = await self._child()
        try:
            await _write(child, _request(job, claim))
            reply = await _read(child)
        except BaseException:
            await _end(child)
            raise
        self._idle.append(child)
        return _answer(job, reply)

    async def _child(self) -> asyncio.subprocess.Process:
        while self._idle:
            child = self._idle.pop()
            if child.returncode is None:
                return child
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "nimbusq.worker.child",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )

    async def aclose(self) -> None:
        """End the idle children; running ones end with their runs."""
        while self._idle:
            await _end(self._idle.pop())


def _request(job: Job, claim: Claim) -> dict[str, Any]:
    model = type(job)
    envelope = claim.envelope
    assert isinstance(envelope, Envelope)  # a job was read from it
    if "<locals>" in model.__qualname__:
        raise ConfigError(
            f"{model.__qualname__} runs in a process and must be defined at the top of a module."
        )
    module = sys.modules.get(model.__module__)
    return {
        "path": sys.path,
        "module": model.__module__,
        "file": getattr(module, "__file__", None),
        "wire": envelope.to_text(),
        "attempt": claim.attempt,
        "releases": claim.releases,
        "fence": claim.fence,
    }


def _answer(job: Job, reply: dict[str, Any]) -> Any:
    match reply:
        case {"release": float() | int() as delay}:
            raise Release(delay)
        case {"fail": str() as reason}:
            raise Fail(reason)
        case {"error": {"kind": kind, "text": text, "traceback": trace, "final": final}}:
            error = RemoteError(kind, text, trace)
            raise Fail(error) if final else error
        case {"result": result}:
            return None if result is None else result_adapter(type(job)).validate_json(result)
        case _:
            raise RemoteError("ProtocolError", "the child process answered nonsense", "")


async def _write(child: asyncio.subprocess.Process, message: dict[str, Any]) -> None:
    assert child.stdin is not None  # asked for a pipe
    body = json.dumps(message).encode()
    child.stdin.write(_LENGTH.pack(len(body)) + body)
    await child.stdin.drain()


async def _read(child: asyncio.subprocess.Process) -> dict[str, Any]:
    assert child.stdout is not None  # asked for a pipe
    try:
        size = _LENGTH.unpack(await child.stdout.readexactly(_LENGTH.size))[0]
        reply: dict[str, Any] = json.loads(await child.stdout.readexactly(size))
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        code = await child.wait()
        raise RemoteError("ProcessDied", f"the handler's process ended with code {code}", "") from error
    return reply


async def _end(child: asyncio.subprocess.Process) -> None:
    if child.returncode is None:
        child.kill()
    waiting = asyncio.ensure_future(child.wait())
    while not waiting.done():
        try:
            await asyncio.wait({waiting})
        except asyncio.CancelledError:
            continue  # the kill has been sent: it ends in a moment
