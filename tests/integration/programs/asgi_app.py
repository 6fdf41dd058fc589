"""A Starlette application with a worker in its lifespan, as a user would write it."""

import asyncio
import os
import signal
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from nimbusq import Job, dispatch
from nimbusq.asgi import worker_lifespan

LEDGER = Path(os.environ["LEDGER"])


def note(line: str) -> None:
    with LEDGER.open("a") as ledger:
        ledger.write(line + "\n")


class Sleep(Job):
    seconds: float

    async def handle(self) -> None:
        note(f"start {self.seconds}")
        await asyncio.sleep(self.seconds)
        note(f"end {self.seconds}")


async def send(request: Request) -> JSONResponse:
    receipt = await dispatch(Sleep(seconds=float(request.query_params["seconds"]))).send()
    return JSONResponse({"id": receipt.id, "status": receipt.status})


async def slow(_request: Request) -> JSONResponse:
    note("request start")
    await asyncio.sleep(1.0)
    return JSONResponse({"slow": True})


async def handlers(request: Request) -> JSONResponse:
    """Whose signal handlers are in force, and whether the worker is ready."""
    handler = signal.getsignal(signal.SIGTERM)
    owner = getattr(getattr(handler, "__func__", handler), "__module__", str(handler))
    return JSONResponse({"sigterm": owner, "ready": request.state.nimbusq_worker.ready})


app = Starlette(
    routes=[Route("/send", send), Route("/slow", slow), Route("/handlers", handlers)],
    lifespan=worker_lifespan("default", concurrency=4, grace=2.0),
)
