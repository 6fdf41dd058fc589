"""What the command line does to failed jobs and batches; `tests/integration/test_cli.py` starts it as a user does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from nimbusq import Batch, Manager, Worker, dispatch, dispatch_many
from nimbusq.cli import cli, exits
from nimbusq.driver import NewBatch
from tests.coordination.place import Place, workers
from tests.coordination.programs import shop


class Desk:
    """A queue in an SQLite file, what happens to it, and the commands that are given there."""

    def __init__(self, folder: Path) -> None:
        self.place = Place(f"sqlite:///{folder / 'jobs.db'}", folder, prefix="desk")

    def happens(self, story: Callable[[Manager], Awaitable[Any]], *, drained: bool = True) -> Any:
        """Tell a story of the queue, run what is due at its end, and return what the story returned."""

        async def main() -> Any:
            async with self.place.manager() as manager:
                told = await story(manager)
                if drained:
                    async with workers(Worker(manager, ["default", "mail"], lease=5)):
                        await self.place.until_idle(manager)
                        await self.place.until_idle(manager, "mail")
                return told

        return asyncio.run(main())

    def run(self, *words: str, code: int = 0) -> str:
        """What a command prints, when it ends with this code."""
        env = {"QUEUE_DRIVER": self.place.url, "NIMBUSQ_PREFIX": "desk", "COLUMNS": "200"}
        result = CliRunner().invoke(cli, list(words), env=env)
        assert result.exit_code == code, (result.exit_code, result.output, result.exception)
        return result.output

    def json(self, *words: str) -> Any:
        return json.loads(self.run(*words, "--json"))


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_failed_jobs_are_put_back_one_by_one_by_queue_and_all(desk: Desk) -> None:
    async def five_fail(_: Manager) -> list[str]:
        jobs = [dispatch(shop.broken, f"b{n}").on_queue("mail" if n > 2 else "default") for n in range(5)]
        return [receipt.id for receipt in await dispatch_many(jobs)]

    ids = desk.happens(five_fail)
    assert {record["id"] for record in desk.json("failed", "list")} == set(ids)
    assert len(desk.json("failed", "list", "--queue", "mail")) == 2
    page = desk.run("failed", "list", "--limit", "3")
    assert "more: --cursor " in page
    assert desk.run("failed", "retry", ids[0]) == "1 put back\n"
    told = desk.run("failed", "retry", ids[0], ids[1], code=exits.PARTLY)
    assert told == f"1 put back\n{ids[0]}: no such failed job\n"
    assert desk.run("failed", "retry", "--queue", "mail") == "2 put back\n"
    (group,) = desk.json("failed", "groups")
    assert (group["name"], group["count"]) == ("broken", 1)
    assert desk.run("failed", "retry", "--group", group["fingerprint"]) == "1 put back\n"
    assert desk.run("failed", "retry", "--all") == "0 put back\n"
    assert len(desk.json("jobs", "list")) == 5
    assert "name job ids" in desk.run("failed", "retry", code=exits.USAGE)


def test_a_retry_that_another_job_refuses_says_which(desk: Desk) -> None:
    async def one_fails(_: Manager) -> str:
        return (await dispatch(shop.broken, "x").unique("k").send()).id

    async def another_waits(_: Manager) -> str:
        return (await dispatch(shop.broken, "x").unique("k").delay(60).send()).id

    failed, holder = desk.happens(one_fails), desk.happens(another_waits, drained=False)
    told = desk.run("failed", "retry", failed, code=exits.CONFLICT)
    assert told == f"0 put back\n{failed}: job {holder} is active under its unique key\n"
    assert desk.json("failed", "show", failed)[0]["id"] == failed, "its record stays"
    assert desk.json("jobs", "explain", failed)[0]["gate"] == "unique"


def test_failed_jobs_are_forgotten_by_id_by_queue_and_by_age(desk: Desk) -> None:
    async def three_fail(_: Manager) -> list[str]:
        jobs = [dispatch(shop.broken, f"b{n}").on_queue("mail" if n else "default") for n in range(3)]
        return [receipt.id for receipt in await dispatch_many(jobs)]

    ids = desk.happens(three_fail)
    assert desk.run("failed", "prune", "--yes") == "0 forgotten\n", "none is older than a week"
    assert desk.run("failed", "forget", ids[1], "unknown", code=exits.PARTLY) == "1 forgotten\n"
    assert desk.run("failed", "forget", "unknown", code=exits.NOT_FOUND) == "0 forgotten\n"
    assert desk.run("failed", "forget", "--queue", "mail", "--yes") == "1 forgotten\n"
    assert [record["id"] for record in desk.json("failed", "list")] == [ids[0]]
    assert desk.run("failed", "prune", "--hours", "0", "--yes") == "1 forgotten\n"
    assert desk.json("failed", "list") == []


def test_a_queue_is_cleared(desk: Desk) -> None:
    async def three_wait(_: Manager) -> None:
        await dispatch_many(
            [dispatch(shop.step, f"j{n}").on_queue("mail" if n else "default") for n in range(3)]
        )

    desk.happens(three_wait, drained=False)
    assert "add --yes" in desk.run("queues", "clear", "mail", code=exits.REFUSED)
    assert desk.run("queues", "clear", "mail", "--yes") == "2 cancelled\n"
    assert [job["queue"] for job in desk.json("jobs", "list")] == ["default"]


def test_batches_are_listed_shown_and_cancelled(desk: Desk) -> None:
    async def two_batches(manager: Manager) -> tuple[str, str]:
        first = await Batch([dispatch(shop.broken, "x"), dispatch(shop.step, "y")]).named("first").send()
        await manager.require("batches", "").create(NewBatch(id="left-open"))
        second = await Batch([dispatch(shop.step, "z").delay(3600)]).named("second").send()
        return first.id, second.id

    first, second = desk.happens(two_batches)
    stages = {batch["id"]: batch["stage"] for batch in desk.json("batches", "list")}
    assert stages == {first: "finished", second: "running", "left-open": "open"}
    assert desk.json("batches", "list", "--incomplete") == [], "it is younger than a day"
    (shown,) = desk.json("batches", "show", first)
    assert (shown["name"], shown["total"], shown["pending"], shown["failed"]) == ("first", 2, 0, 1)
    assert "broken: ValueError: x" in desk.run("batches", "show", first)
    assert desk.run("batches", "cancel", second) == f"{second} cancelled: 0 of 1 members still run\n"
    assert desk.json("batches", "show", second)[0]["cancelled"] is True
    for words in (["show", "unknown"], ["cancel", "unknown"]):
        assert "unknown or has expired" in desk.run("batches", *words, code=exits.NOT_FOUND)


def test_a_batch_that_its_producer_has_left_is_shown_as_incomplete(desk: Desk) -> None:
    async def abandoned() -> None:
        async with desk.place.time_machine() as (manager, advance):
            await advance(-25 * 3600)
            await manager.require("batches", "").create(NewBatch(id="left"))

    asyncio.run(abandoned())
    assert [batch["id"] for batch in desk.json("batches", "list", "--incomplete")] == ["left"]
