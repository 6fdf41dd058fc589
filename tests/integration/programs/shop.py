"""The jobs that the command-line tests work with."""

from nimbusq import Job, Scheduler, job


class Greet(Job):
    name: str

    async def handle(self) -> str:
        return f"hello {self.name}"


@job(retries=0)
async def boom(n: int) -> None:
    raise ValueError(f"boom {n}")


@job(retries=0)
async def stubborn() -> None:
    import asyncio

    while True:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            continue


@job
async def nap(seconds: float) -> None:
    import asyncio

    await asyncio.sleep(seconds)


scheduler = Scheduler(tz="Europe/Berlin")
scheduler.cron("0 3 * * *", Greet(name="night"), name="nightly")
scheduler.every(3600, Greet(name="hour"), name="hourly")
