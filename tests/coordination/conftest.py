"""Each test of this folder runs on every driver that coordinates."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from nimbusq.registry import Registry, registry
from tests.coordination.place import Place, place

DRIVERS = ["sync", "sqlite", "redis", "postgres", "mysql"]
FIXTURES = {"redis": "redis_url", "postgres": "postgres_url", "mysql": "mysql_url"}


def _params(names: list[str]) -> list[object]:
    return [
        pytest.param(name, marks=[getattr(pytest.mark, name)] if name in FIXTURES else []) for name in names
    ]


def _url(name: str, folder: Path, request: pytest.FixtureRequest) -> str:
    match name:
        case "sync":
            return "memory://"
        case "sqlite":
            return f"sqlite:///{folder / 'jobs.db'}"
        case _:
            return str(request.getfixturevalue(FIXTURES[name]))


@pytest.fixture(params=_params(DRIVERS))
async def here(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    """A queue on every driver, in worker mode."""
    async with place(_url(request.param, tmp_path, request), tmp_path) as here:
        yield here


@pytest.fixture(params=_params(DRIVERS[1:]))
async def shared(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    """A queue on every driver that other processes can reach."""
    async with place(_url(request.param, tmp_path, request), tmp_path) as here:
        yield here


BESIDE = [("sqs", "sqlite"), ("sqs", "redis"), ("kafka", "redis")]


@pytest.fixture(
    params=[
        pytest.param(
            pair, marks=[getattr(pytest.mark, name) for name in pair if name != "sqlite"], id="-".join(pair)
        )
        for pair in BESIDE
    ]
)
async def beside(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    """A carrier that ties no jobs together, with a store beside it."""
    carrier, store = request.param
    url = "sqs://us-east-1" if carrier == "sqs" else f"kafka://{request.getfixturevalue('kafka_brokers')}"
    async with place(url, tmp_path, _url(store, tmp_path, request)) as here:
        yield here


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs that one test defines are unknown to the next."""
    own = Registry()
    for job in registry:
        own.add(job)
    monkeypatch.setattr("nimbusq.jobs.registry", own)
    monkeypatch.setattr("nimbusq.manager.all_jobs", own)


@pytest.fixture(autouse=True)
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where handlers of this process note what they do; see `programs/shop.py`."""
    monkeypatch.setenv("LEDGER", str(tmp_path / "ledger"))
