"""A worker process of the SQS storm: QUEUE_DRIVER and the rest from the environment, its notes into STORM_LOG.

A job notes its number when it starts and when it ends: one line, written in one step, so that it is in the file
whatever happens to the process next.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time

from nimbusq import Manager, Settings, Worker, current_job, job


def note(event: str, n: int, attempt: int) -> None:
    file = os.open(os.environ["STORM_LOG"], os.O_WRONLY | os.O_APPEND)
    try:
        os.write(file, f"{event} {n} {attempt} {time.time()}\n".encode())
    finally:
        os.close(file)


@job(name="storm", retries=20)
async def storm(n: int, seconds: float = 0.02) -> None:
    attempt = current_job().attempt
    note("start", n, attempt)
    await asyncio.sleep(seconds)
    note("end", n, attempt)


async def main(concurrency: int, lease: float) -> None:
    async with Manager(settings=Settings()) as manager:
        worker = Worker(manager, "default", concurrency=concurrency, lease=lease)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
        note("up", 0, 0)
        await worker.run()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), float(sys.argv[2])))
