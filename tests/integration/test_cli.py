"""The command line, as a user starts it: processes, exit codes, signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = Path(__file__).parent / "programs"


@dataclass
class Shell:
    """`nimbusq` in a folder that has programs/shop.py, on an SQLite file of its own."""

    folder: Path
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def env(self) -> dict[str, str]:
        url = f"sqlite:///{self.folder / 'jobs.db'}"
        return {
            **os.environ,
            "QUEUE_DRIVER": url,
            "NO_COLOR": "1",
            "COLUMNS": "200",
            "PYTHONWARNINGS": "error",
        }

    def start(self, *words: str, **env: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "nimbusq", *words],
            cwd=PROGRAMS,
            env={**self.env, **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
        )
        self.started.append(process)
        return process

    def run(self, *words: str, code: int = 0, **env: str) -> str:
        """stdout of a command that ends with this code; its stderr follows where there is one."""
        process = self.start(*words, **env)
        out, err = process.communicate(timeout=30)
        assert process.returncode == code, (process.returncode, out, err)
        return out + err

    def json(self, *words: str) -> Any:
        process = self.start(*words, "--json")
        out, err = process.communicate(timeout=30)
        assert process.returncode == 0, err
        return json.loads(out)

    def python(self, code: str) -> str:
        """Run code that may send jobs of `shop`."""
        script = f"import asyncio\nfrom nimbusq import *\nimport shop\nasync def main():\n{code}\nasyncio.run(main())"
        done = subprocess.run(
            [sys.executable, "-c", script],
            cwd=PROGRAMS,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def send(self, call: str) -> str:
        """The id of a sent job: `call` is what dispatch takes."""
        return self.python(f"    async with Manager():\n        print((await dispatch({call}).send()).id)")


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path)
    yield shell
    for process in shell.started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def until_says(process: subprocess.Popen[str], text: str) -> None:
    """Read the process's stderr until it says `text`."""
    assert process.stderr is not None
    for line in process.stderr:
        if text in line:
            return
    raise AssertionError(f"it ended without saying {text!r}")


def test_version(shell: Shell) -> None:
    assert shell.run("version").startswith("nimbusq 0.")


def test_a_worker_in_burst_mode_runs_what_is_there_and_ends(shell: Shell) -> None:
    shell.send("shop.Greet(name='ada')")
    failed = shell.send("shop.boom, 7")
    said = shell.run("work", "--app", "shop", "--burst")
    assert "DONE    Greet" in said
    assert "FAIL    boom" in said
    assert "ValueError: boom 7" in said
    assert "1 processed, 1 failed" in said
    (record,) = shell.json("failed", "list")
    assert (record["id"], record["name"], record["error"]) == (failed, "boom", "ValueError: boom 7")
    (group,) = shell.json("failed", "groups")
    assert (group["kind"], group["count"]) == ("ValueError", 1)


@pytest.mark.slow
def test_failed_jobs_are_shown_retried_and_forgotten(shell: Shell) -> None:
    failed = shell.send("shop.boom, 7")
    shell.run("work", "--app", "shop", "--burst")
    assert "raise ValueError" in shell.run("failed", "show", failed)
    assert shell.run("failed", "retry", failed) == "1 put back\n"
    assert "no such failed job" in shell.run("failed", "retry", failed, code=5)
    shell.run("work", "--app", "shop", "--burst")
    assert shell.run("failed", "forget", "--all", code=10).startswith("nimbusq: Forget all")
    assert shell.run("failed", "forget", "--all", "--yes") == "1 forgotten\n"
    assert shell.json("failed", "list") == []
    shell.run("failed", "show", failed, code=5)


@pytest.mark.slow
def test_jobs_and_queues_are_listed_cancelled_paused_and_explained(shell: Shell) -> None:
    job = shell.send("shop.Greet(name='ada')")
    assert [view["id"] for view in shell.json("jobs", "list")] == [job]
    assert shell.json("jobs", "explain", job)[0]["gate"] == "worker"
    shell.run("queues", "pause", "default")
    assert shell.json("queues", "list")[0] | {"oldest": 0} == {
        "queue": "default", "pending": 1, "delayed": 0, "running": 0, "oldest": 0, "paused": True,
    }  # fmt: skip
    assert [gate["gate"] for gate in shell.json("jobs", "explain", job)] == ["queue paused", "worker"]
    shell.run("queues", "resume", "default")
    shell.run("jobs", "pause", job)
    assert shell.json("jobs", "show", job)[0]["state"] == "paused"
    shell.run("jobs", "resume", job)
    assert shell.run("jobs", "cancel", job) == "1 cancelled\n"
    assert shell.json("jobs", "show", job)[0]["state"] == "cancelled"
    shell.run("jobs", "cancel", "no-such-job", code=5)
    shell.run("jobs", "show", "no-such-job", code=5)


@pytest.mark.slow
def test_schedules_are_listed_triggered_and_paused(shell: Shell) -> None:
    listed = {one["name"]: one for one in shell.json("schedule", "list", "--app", "shop")}
    assert listed["nightly"]["spec"]["tz"] == "Europe/Berlin"
    assert len(listed["hourly"]["next_runs"]) == 5
    job = shell.run("schedule", "trigger", "nightly", "--app", "shop").strip()
    assert shell.json("jobs", "show", job)[0]["name"] == "Greet"
    assert "no schedule" in shell.run("schedule", "pause", "nightly", "--app", "shop", code=5)
    scheduler = shell.start("schedule", "run", "--app", "shop")
    until_says(scheduler, "scheduler of 2 schedules")
    deadline = time.monotonic() + 10
    while not any(one["last_tick"] for one in shell.json("schedule", "list", "--app", "shop")):
        assert time.monotonic() < deadline
    scheduler.send_signal(signal.SIGTERM)
    assert scheduler.wait(10) == 0
    shell.run("schedule", "pause", "nightly", "--app", "shop")
    listed = {one["name"]: one["paused"] for one in shell.json("schedule", "list", "--app", "shop")}
    assert listed == {"nightly": True, "hourly": False}


@pytest.mark.slow
def test_migrations_of_an_sqlite_file(shell: Shell) -> None:
    assert "schema" in shell.run("migrate", "up")
    shell.run("migrate", "up")
    assert shell.json("migrate", "status")[0]["state"] == "applied"
    shell.run("migrate", "check")
    assert "drop table" in shell.run("migrate", "down", "--to", "0", "--plan").lower()
    shell.run("migrate", "down", "--to", "0", code=10)
    shell.run("migrate", "down", "--to", "0", "--yes")
    assert "migrate up" in shell.run("migrate", "check", code=8)
    assert "create table" in shell.run("migrate", "sql", "sqlite").lower()
    shell.run("migrate", "sql", "oracle", code=2)


@pytest.mark.parametrize(
    ("words", "env", "code", "said"),
    [
        (["work", "--app", "no_such_module"], {}, 3, "cannot be imported"),
        (["work", "--app", "shop:nothing"], {}, 3, "has no 'nothing'"),
        (["work"], {"QUEUE_DRIVER": "rabbitmq://x"}, 3, "no driver is called 'rabbitmq'"),
        (["work"], {"QUEUE_DB_LEASE_SECONDS": "soon"}, 3, "QUEUE_DB_LEASE_SECONDS"),
        (["work", "no such queue"], {}, 2, "is not allowed"),
        (["work", "mail:0"], {}, 3, "after the colon"),
        (["work", "--lease", "0"], {}, 2, "more than 0"),
        (["work", "--concurrency", "0"], {}, 2, "concurrency"),
        (["work", "--log-level", "loud"], {}, 2, "loud"),
        (["migrate", "status"], {"QUEUE_DRIVER": "sync"}, 2, "has no schema"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_named(
    shell: Shell, words: list[str], env: dict[str, str], code: int, said: str
) -> None:
    assert said in shell.run(*words, code=code, **env)


def test_a_signal_drains(shell: Shell) -> None:
    shell.send("shop.nap, 1.0")
    worker = shell.start("work", "--app", "shop", "--log-level", "debug")
    until_says(worker, "START   nap")
    worker.send_signal(signal.SIGTERM)
    _, err = worker.communicate(timeout=15)
    assert worker.returncode == 0
    assert "draining: 1 running" in err
    assert "1 processed, 0 failed, 0 retried, 0 released" in err


def test_a_second_signal_cancels_and_puts_back(shell: Shell) -> None:
    job = shell.send("shop.nap, 60")
    worker = shell.start("work", "--app", "shop", "--log-level", "debug")
    until_says(worker, "START   nap")
    worker.send_signal(signal.SIGINT)
    until_says(worker, "draining")
    worker.send_signal(signal.SIGINT)
    assert worker.wait(10) == 0
    (view,) = shell.json("jobs", "show", job)
    assert (view["state"], view["attempt"]) == ("ready", 0)


def test_a_third_signal_ends_at_once(shell: Shell) -> None:
    shell.send("shop.stubborn")
    worker = shell.start("work", "--app", "shop", "--log-level", "debug")
    until_says(worker, "START   stubborn")
    for said in ("draining", "cancelling"):
        worker.send_signal(signal.SIGTERM)
        until_says(worker, said)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(5) == 130


@pytest.mark.slow
def test_a_handler_that_ignores_its_cancellation_does_not_keep_the_process(shell: Shell) -> None:
    shell.send("shop.stubborn")
    worker = shell.start("work", "--app", "shop", "--shutdown-timeout", "0.5", "--log-level", "debug")
    until_says(worker, "START   stubborn")
    worker.send_signal(signal.SIGTERM)
    _, err = worker.communicate(timeout=0.5 + 4 + 4)
    assert worker.returncode == 1
    assert "ignored" in err


def test_the_demo_needs_nothing(shell: Shell) -> None:
    process = subprocess.run(
        [sys.executable, "-m", "nimbusq", "demo", "--seconds", "1", "--fail", "0"],
        env={name: value for name, value in shell.env.items() if name != "QUEUE_DRIVER"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    assert "0 failed for good" in process.stdout
    assert "album album-0: 20 images, 0 broken" in process.stdout


def test_idle_start_up_is_quick_enough_to_be_interactive(shell: Shell) -> None:
    """A guard against an import of every driver at start; the figures stand in docs/benchmarks.md."""
    slow = ("redis", "asyncpg", "aiomysql", "aiokafka", "rich.table")
    code = f"import sys, nimbusq.cli; print([m for m in {slow} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout.strip() == "[]"
