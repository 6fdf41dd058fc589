"""Sends a batch of N members in chunks of ten and dies (kill -9) after some: producer.py BATCH N KILL_AT."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator

import shop

import nimbusq.batch
from nimbusq import Batch, Manager, dispatch
from nimbusq.builder import Dispatch


def members(n: int, kill_at: int) -> Iterator[Dispatch[None]]:
    for number in range(n):
        if number == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        yield dispatch(shop.step, f"m{number}")


async def main(batch_id: str, n: int, kill_at: int) -> None:
    nimbusq.batch.CHUNK = 10  # type: ignore[misc]  # small chunks make many crash windows
    async with Manager():
        batch = Batch(members(n, kill_at), id=batch_id)
        await batch.then(shop.on_then).finally_(shop.on_finally).send()


asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
