"""Sends one unique job from P processes N times each, all at once: sender.py slot|lock KEY P N.

Prints a line for each send: queued|duplicate ID. The processes are forks of this one.
"""

from __future__ import annotations

import asyncio
import os
import sys

import shop

from nimbusq import DuplicateJob, Manager, dispatch


async def send(kind: str, key: str, n: int, ready: int, go: int) -> None:
    async def once() -> str:
        job = dispatch(shop.step, "one")
        try:
            receipt = await (job.unique(key) if kind == "slot" else job.unique_for(key=key)).send()
        except DuplicateJob as duplicate:
            return f"duplicate {duplicate.job_id}\n"
        return f"{receipt.status} {receipt.id}\n"

    async with Manager():
        os.write(ready, b".")
        os.read(go, 1)  # ends for all at once, when the parent closes its end
        os.write(1, "".join(await asyncio.gather(*(once() for _ in range(n)))).encode())


def main(kind: str, key: str, processes: int, n: int) -> None:
    Manager()  # what it imports is imported once
    (all_ready, ready), (go, let_go) = os.pipe(), os.pipe()
    for _ in range(processes):
        if os.fork() == 0:
            os.close(let_go)
            asyncio.run(send(kind, key, n, ready, go))
            os._exit(0)
    for _ in range(processes):
        os.read(all_ready, 1)
    os.close(let_go)
    for _ in range(processes):
        _, status = os.wait()
        assert status == 0


main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
