"""Sends from code that is not async."""

from __future__ import annotations

import subprocess
import sys

import pytest

from nimbusq import Manager, NimbusqError, NoManager, Worker, dispatch, job
from nimbusq.bridge import boot_sync

PROGRAM = """
from nimbusq import dispatch, job
from nimbusq.bridge import boot_sync

@job
async def double(n: int) -> int:
    print("ran", n)
    return 2 * n

manager = boot_sync(driver="sync")
receipt = dispatch(double, 21).send_sync()
print(receipt.status)
"""


def test_a_program_without_a_loop_boots_sends_and_ends() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "ran 21\ndone\n", "")


async def test_a_handler_in_a_thread_sends() -> None:
    @job
    def parent() -> None:
        dispatch(child, 7).on_queue("later").send_sync()

    @job
    async def child(n: int) -> None: ...

    async with Manager("memory://") as manager:
        await dispatch(parent).send()
        assert await Worker(manager).run_once() == 1
        assert (await manager.depth("later")).pending == 1


async def test_it_is_refused_inside_a_loop() -> None:
    @job
    async def child() -> None: ...

    async with Manager("memory://") as manager:
        builder = dispatch(child)
        with pytest.raises(NimbusqError, match="await send"):
            builder.send_sync()
        builder.disarm()
        assert (await manager.depth()).pending == 0
    with pytest.raises(NimbusqError, match="await boot"):
        boot_sync(driver="sync")


def test_a_manager_that_is_open_nowhere_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    @job
    async def child() -> None: ...

    monkeypatch.setattr("nimbusq.builder.find_manager", lambda: Manager("memory://"))
    with pytest.raises(NoManager, match="boot_sync"):
        dispatch(child).send_sync()
