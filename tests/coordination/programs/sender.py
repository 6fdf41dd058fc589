"""Sends one unique job many times at once: sender.py KEY N. Says "ready", waits for a line, and prints a line for
each send: queued|duplicate ID."""

from __future__ import annotations

import asyncio
import sys

import shop

from nimbusq import DuplicateJob, Manager, dispatch


async def main(key: str, n: int) -> None:
    async with Manager():
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.readline()  # the test lets all senders go together

        async def send() -> str:
            try:
                receipt = await dispatch(shop.step, "one").unique(key).send()
            except DuplicateJob as duplicate:
                return f"duplicate {duplicate.job_id}"
            return f"{receipt.status} {receipt.id}"

        sys.stdout.write("\n".join(await asyncio.gather(*(send() for _ in range(n)))))


asyncio.run(main(sys.argv[1], int(sys.argv[2])))
