"""boot, get_manager and `async with Manager`: which manager a send uses, and what happens at start."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, cast

import pytest

from nimbusq import (
    ConfigError,
    Job,
    Manager,
    NoManager,
    Settings,
    StoreError,
    boot,
    dispatch,
    get_manager,
)
from nimbusq.driver import Adapter
from nimbusq.errors import StoreUnavailable, UnknownDriver
from nimbusq.manager import find_manager, set_default
from nimbusq_sync import SyncAdapter


class Ping(Job):
    async def handle(self) -> str:
        return "pong"


@pytest.fixture(autouse=True)
async def _no_default() -> AsyncIterator[None]:
    yield
    if (manager := find_manager()) is not None:
        await manager.aclose()
    set_default(None)


def test_without_a_manager() -> None:
    assert find_manager() is None
    with pytest.raises(NoManager, match=r"await nimbusq\.boot\(\)"):
        get_manager()


async def test_boot_makes_the_default_of_the_process() -> None:
    manager = await boot(driver="memory")
    assert get_manager() is manager
    assert await asyncio.create_task(current()) is manager, "in other tasks too"
    assert await asyncio.to_thread(find_manager) is manager, "and in threads"
    assert (await dispatch(Ping()).send()).status == "queued"
    await manager.aclose()
    assert find_manager() is None


async def current() -> Manager | None:
    return find_manager()


async def test_boot_reads_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUEUE_DRIVER", "memory")
    manager = await boot()
    assert not manager.adapter.capabilities.inline


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_boot_registers_first(asynchronous: bool) -> None:
    calls: list[str] = []

    def register() -> Any:
        calls.append("register")
        return asyncio.sleep(0) if asynchronous else None

    await boot(driver="memory", register=register)
    assert calls == ["register"]


async def test_changes_override_single_settings() -> None:
    settings = Settings(driver="memory", prefix="shop", history_limit=5)
    manager = await boot(settings, history_limit=7)
    assert (manager.settings.prefix, manager.settings.history_limit) == ("shop", 7)


async def test_changes_are_checked_as_settings_are() -> None:
    with pytest.raises(ConfigError, match=r"history_limit|NIMBUSQ_HISTORY_LIMIT"):
        await boot(Settings(driver="memory"), history_limit=-1)


async def test_a_second_boot_closes_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    first = await boot(driver="memory")
    closed: list[Manager] = []

    async def aclose() -> None:
        closed.append(first)

    monkeypatch.setattr(first.adapter, "aclose", aclose)
    second = await boot(driver="memory")
    assert get_manager() is second
    assert closed == [first]


async def test_booting_the_same_manager_again_keeps_it_open() -> None:
    manager = Manager("memory://")
    await boot(manager=manager)
    await boot(manager=manager)
    assert get_manager() is manager
    assert (await dispatch(Ping()).send()).status == "queued"


async def test_a_boot_that_fails_leaves_the_default_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    first = await boot(driver="memory")
    with pytest.raises(UnknownDriver):
        await boot(driver="nothing")
    assert get_manager() is first

    class Away(SyncAdapter):
        async def open(self) -> None:
            raise StoreUnavailable("connection refused")

    with pytest.raises(StoreError, match="connection refused"):
        await boot(manager=Manager(cast("Adapter", Away())))
    assert get_manager() is first
    assert (await dispatch(Ping()).send()).status == "queued"


async def test_async_with_comes_before_the_default() -> None:
    default = await boot(driver="memory")
    async with Manager("memory://") as inner:
        assert get_manager() is inner
        async with Manager("memory://") as innermost:
            assert get_manager() is innermost
        assert get_manager() is inner
    assert get_manager() is default


async def test_a_manager_can_be_opened_again() -> None:
    manager = Manager("sync")
    for _ in range(2):
        async with manager:
            receipt = await dispatch(Ping()).send()
            assert await receipt.result(timeout=1) == "pong"


class Urgent(Job, priority=1):
    async def handle(self) -> None: ...


class Plain(SyncAdapter):
    """A driver without priorities."""

    def __init__(self) -> None:
        super().__init__(inline=False)
        self.capabilities = replace(self.capabilities, priorities=False, driver="plain")


async def test_jobs_that_the_driver_cannot_carry_are_named_at_boot(caplog: pytest.LogCaptureFixture) -> None:
    await boot(manager=Manager(cast("Adapter", Plain())))
    assert "Urgent: the plain driver cannot do priorities" in caplog.text


async def test_and_refused_in_strict_mode() -> None:
    settings = Settings(driver="memory", strict=True)
    with pytest.raises(ConfigError, match="Urgent"):
        await boot(manager=Manager(cast("Adapter", Plain()), settings=settings))
    assert find_manager() is None


async def test_depths_of_several_queues() -> None:
    async with Manager("memory://") as manager:
        await dispatch(Ping()).send()
        await dispatch(Ping()).on_queue("b").delay(60).send()
        depths = await manager.depths(["default", "b", "c"])
    assert [(depth.queue, depth.pending, depth.delayed, depth.running) for depth in depths] == [
        ("default", 1, 0, 0),
        ("b", 0, 1, 0),
        ("c", 0, 0, 0),
    ]
    assert depths[0].oldest is not None
    assert depths[0].oldest >= 0
