"""Keeps N workers at work, whoever of them dies: nursery.py N, with the environment of worker.py.

They are forks of this process, so that a new one costs no start of an interpreter. Ends, with all of them, once
one has ended in good order or this process is killed with its session.
"""

from __future__ import annotations

import asyncio
import os
import sys

import worker

from nimbusq import Manager


def grow() -> None:
    if os.fork() == 0:
        asyncio.run(worker.main(["default"]))
        os._exit(0)


def main(n: int) -> None:
    Manager()  # what it imports is imported once
    for _ in range(n):
        grow()
    while True:
        _, status = os.wait()
        if os.waitstatus_to_exitcode(status) >= 0:
            sys.exit("a worker of the nursery ended by itself")
        grow()


main(int(sys.argv[1]))
