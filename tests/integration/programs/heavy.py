"""Jobs that run in processes of their own."""

import os
import re
import time

from nimbusq import Fail, Release, current_job, job


@job(runs_in="process")
def where(n: int) -> tuple[int, int, int]:
    print("what a handler prints does not disturb the answer")  # noqa: T201  # the very point
    return os.getpid(), n, current_job().attempt


@job(runs_in="process")
async def coroutine(n: int) -> bytes:
    return bytes([n, 255])


class Stop(Exception):
    pass


@job(runs_in="process", backoff=0.01, retries=1, dont_retry=[Stop])
def misbehave(how: str) -> str:
    match how:
        case "error":
            raise ValueError("heavy")
        case "stop":
            raise Stop("at once")
        case "fail":
            raise Fail("for good")
        case "release":
            if current_job().releases < 2:
                raise Release(0.01)
            return "released twice"
        case "die":
            os._exit(7)
    return "?"


@job(runs_in="process", timeout=1, retries=0)
def spin() -> None:
    time.sleep(60)


@job(runs_in="process")
def hold_the_interpreter(seconds: float) -> None:
    """Backtracks in C code that never lets go of the interpreter lock."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        re.match(r"(a+)+$", "a" * 22 + "b")
