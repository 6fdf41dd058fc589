"""The wheel alone, in an empty environment: what a user gets from ``pip install nimbusq``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from textwrap import dedent

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]  # it downloads

JOBS = dedent(
    """
    from nimbusq import Job, job

    class Greet(Job):
        whom: str

        async def handle(self) -> str:
            return f"hello {self.whom}"

    @job
    async def add(a: int, b: int) -> int:
        return a + b
    """
)

PROGRAM = dedent(
    """
    import asyncio, sys
    from nimbusq import Manager, dispatch
    from jobs import Greet, add

    async def main(url: str) -> None:
        async with Manager(url):
            greeting = await dispatch(Greet(whom="wheel")).send()
            total = await dispatch(add, 2, b=3).send()
            print(await greeting.result(timeout=30), await total.result(timeout=30))

    asyncio.run(main(sys.argv[1]))
    """
)


OURS = ("QUEUE_", "NIMBUSQ_", "REDIS_", "DATABASE_", "KAFKA_", "SQS_", "PYTHON")


def environment(**variables: str) -> dict[str, str]:
    """This process's, which may tell pip where to look, without the settings of nimbusq and of Python."""
    return {name: value for name, value in os.environ.items() if not name.startswith(OURS)} | variables


def run(*command: str | Path, cwd: Path, **variables: str) -> str:
    """The command's output; what it complained of, where it failed."""
    result = subprocess.run(
        command, cwd=cwd, env=environment(**variables), capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, f"{command} ended with {result.returncode}\n{result.stdout}{result.stderr}"
    return result.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the programs of an environment that has the wheel and what it needs, and no more."""
    folder = tmp_path_factory.mktemp("wheel")
    # Through the sdist, so that a file which that leaves out is noticed.
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder / "dist", ROOT, cwd=folder)
    (wheel,) = (folder / "dist").glob("*.whl")
    venv.create(folder / "empty", with_pip=True)
    programs = folder / "empty" / "bin"
    run(programs / "python", "-m", "pip", "install", "--quiet", wheel, cwd=folder)
    return programs


@pytest.fixture
def app(tmp_path: Path) -> Path:
    """A folder with two jobs and a program that sends them and prints their results."""
    (tmp_path / "jobs.py").write_text(JOBS)
    (tmp_path / "program.py").write_text(PROGRAM)
    return tmp_path


def test_a_bare_install_needs_at_most_eighteen_other_distributions(installed: Path, tmp_path: Path) -> None:
    listed = json.loads(run(installed / "python", "-m", "pip", "list", "--format", "json", cwd=tmp_path))
    names = {entry["name"].lower() for entry in listed} - {"pip", "setuptools"}
    assert "nimbusq" in names
    assert len(names - {"nimbusq"}) <= 18, sorted(names)


def test_it_has_the_types_the_plugin_and_every_driver(installed: Path, tmp_path: Path) -> None:
    source = """
        from importlib.metadata import entry_points
        from importlib.util import find_spec
        from pathlib import Path
        import nimbusq
        assert find_spec("pytest_nimbusq") is not None  # only pytest imports it
        packages = ["nimbusq", *(f"nimbusq_{d}" for d in ("sync", "redis", "database", "sqs", "kafka"))]
        print(*(p for p in packages if Path(find_spec(p).origin).with_name("py.typed").is_file()))
        print(*sorted(point.name for point in entry_points(group="nimbusq.drivers")))
    """
    typed, drivers = run(installed / "python", "-c", dedent(source), cwd=tmp_path).splitlines()
    assert typed.split() == [
        "nimbusq",
        "nimbusq_sync",
        "nimbusq_redis",
        "nimbusq_database",
        "nimbusq_sqs",
        "nimbusq_kafka",
    ]
    assert {"sync", "redis", "sqlite", "postgresql", "mysql", "sqs", "kafka"} <= set(drivers.split())


def test_the_command_tells_its_version(installed: Path, tmp_path: Path) -> None:
    assert "0.1.0" in run(installed / "nimbusq", "version", cwd=tmp_path)


@pytest.mark.parametrize(("url", "extra"), [("redis://localhost", "nimbusq[redis]")])
def test_a_driver_without_its_client_says_what_to_install(
    installed: Path, tmp_path: Path, url: str, extra: str
) -> None:
    source = """
        import sys
        from nimbusq import Manager
        from nimbusq.errors import MissingExtra
        try:
            Manager(sys.argv[1])
        except MissingExtra as error:
            print(error)
    """
    assert extra in run(installed / "python", "-c", dedent(source), url, cwd=tmp_path)


def test_jobs_run_on_the_sync_driver(installed: Path, app: Path) -> None:
    assert run(installed / "python", "program.py", "sync", cwd=app) == "hello wheel 5\n"


def test_jobs_run_on_sqlite_in_a_worker_of_its_own(installed: Path, app: Path) -> None:
    url = f"sqlite:///{app}/jobs.db"
    run(installed / "nimbusq", "migrate", "up", cwd=app, QUEUE_DRIVER=url)
    command = [installed / "nimbusq", "work", "default", "--app", "jobs"]
    with (
        (app / "worker.log").open("wb") as log,
        subprocess.Popen(
            command, cwd=app, env=environment(QUEUE_DRIVER=url), stdout=log, stderr=log
        ) as worker,
    ):
        try:
            assert run(installed / "python", "program.py", url, cwd=app) == "hello wheel 5\n"
        finally:
            worker.terminate()
    assert worker.returncode == 0, (app / "worker.log").read_text()
