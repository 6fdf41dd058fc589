"""A scheduler process: a job every EVERY seconds, under the name of the tick."""

from __future__ import annotations

import asyncio
import os

import shop

from nimbusq import Manager, Scheduler, dispatch


async def main() -> None:
    async with Manager():
        scheduler = Scheduler()
        scheduler.every(float(os.environ["EVERY"]), dispatch(shop.step, "tick"), name="ticks", catch_up="all")
        await scheduler.run()


asyncio.run(main())
