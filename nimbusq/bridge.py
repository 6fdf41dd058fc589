"""For callers that are not async: one event loop in a thread of its own, and sends that wait for it."""

from __future__ import annotations

import asyncio
import atexit
from collections.abc import Coroutine
from contextlib import ExitStack
from functools import partial
from typing import Any, TypeVar

from nimbusq.errors import NimbusqError, NoManager
from nimbusq.manager import Manager, boot

T = TypeVar("T")


def boot_sync(**settings: Any) -> Manager:
    """`boot` for a program without an event loop (Flask, a script): the manager lives in a thread of its own.

    Takes what `boot` takes, by name. The thread ends with the interpreter.
    """
    from anyio.from_thread import start_blocking_portal  # slow to import, and seldom needed

    refuse_in_loop("boot_sync()", "await boot()")
    closing = ExitStack()
    portal = closing.enter_context(start_blocking_portal())
    try:
        manager = portal.call(partial(boot, **settings))
    except BaseException:
        closing.close()
        raise
    closing.callback(portal.call, manager.aclose)
    atexit.register(closing.close)
    return manager


def refuse_in_loop(what: str, instead: str) -> None:
    """A blocking call inside an event loop would stop the very loop that has to answer."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise NimbusqError(f"{what} blocks and cannot be called inside an event loop: use {instead}.")


def wait_for(manager: Manager | None, work: Coroutine[Any, Any, T]) -> T:
    """Run `work` in the event loop in which `manager` is open, and wait for it in this thread."""
    loop = manager.loop if manager is not None else None
    if loop is None or not loop.is_running():
        work.close()
        raise NoManager(
            "no manager is open in a running event loop: call nimbusq.bridge.boot_sync() at start."
        )
    return asyncio.run_coroutine_threadsafe(work, loop).result()
