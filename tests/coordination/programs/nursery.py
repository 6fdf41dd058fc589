"""Keeps N workers at work, whoever of them dies: nursery.py N, with the environment of worker.py.

They are forks of this process, so that a new one costs no start of an interpreter. DIE may name several deaths, one
for each worker in turn ("before:1,after:1"); those that follow live on. Ends when one has ended by itself.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator

import worker

from nimbusq import Manager


def grow(deaths: Iterator[str]) -> None:
    death = next(deaths, "")
    if os.fork() == 0:
        os.environ["DIE"] = death
        asyncio.run(worker.main(["default"]))
        os._exit(0)


def main(n: int) -> None:
    Manager()  # what it imports is imported once
    deaths = iter(os.environ.get("DIE", "").split(","))
    for _ in range(n):
        grow(deaths)
    while True:
        _, status = os.wait()
        if os.waitstatus_to_exitcode(status) not in {-9, worker.KILLED}:
            sys.exit("a worker of the nursery ended by itself")
        grow(deaths)


main(int(sys.argv[1]))
