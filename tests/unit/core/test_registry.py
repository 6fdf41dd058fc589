"""Stable names: what was stored yesterday finds its class today, and two classes never share a name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nimbusq import Job, Manager, dispatch, job
from nimbusq.errors import InvalidJob, UnknownJob
from nimbusq.registry import Registry


def test_the_name_is_the_bare_class_or_function_name(own_registry: Registry) -> None:
    class SendEmail(Job):
        async def handle(self) -> None: ...

    @job
    async def build_report() -> None: ...

    assert own_registry.get("SendEmail") is SendEmail
    assert own_registry.get("build_report") is build_report.model
    assert "handle" not in own_registry


def test_a_given_name_and_older_names(own_registry: Registry) -> None:
    class Posting(Job, name="mail.send", aliases=["SendMail", "Mailer"]):
        async def handle(self) -> None: ...

    assert [own_registry.get(name) for name in ("mail.send", "SendMail", "Mailer")] == [Posting] * 3
    assert "Posting" not in own_registry
    assert list(own_registry).count(Posting) == 1


def test_a_base_without_handle_is_not_registered(own_registry: Registry) -> None:
    class Base(Job, queue="mail"): ...

    assert "Base" not in own_registry


@pytest.mark.parametrize("options", [{"name": "taken"}, {"aliases": ["taken"]}])
def test_two_classes_of_one_name_are_an_error(options: dict[str, object]) -> None:
    class First(Job, name="taken"):
        async def handle(self) -> None: ...

    with pytest.raises(InvalidJob, match="two jobs are called 'taken'") as caught:

        class Second(Job, **options):
            async def handle(self) -> None: ...

    assert "First" in str(caught.value)
    assert "Second" in str(caught.value)
    assert "name='…'" in str(caught.value)


def test_a_class_that_was_refused_leaves_nothing_behind(own_registry: Registry) -> None:
    class First(Job, name="taken"):
        async def handle(self) -> None: ...

    with pytest.raises(InvalidJob):

        class Second(Job, aliases=["taken"]):
            async def handle(self) -> None: ...

    assert "Second" not in own_registry


def test_an_unknown_name_tells_what_there_is() -> None:
    registry = Registry()
    with pytest.raises(UnknownJob, match=r"no job is registered as 'Gone' .*--app.* Registered: none"):
        registry.get("Gone")


def test_the_same_class_again_is_the_same_job(own_registry: Registry) -> None:
    """A reload, or a notebook's cell that runs twice."""

    def define() -> type[Job]:
        class Reloaded(Job):
            async def handle(self) -> None: ...

        return Reloaded

    first, second = define(), define()
    assert first is not second
    assert own_registry.get("Reloaded") is second


PROGRAM = """
import asyncio
from nimbusq import Job, Manager, dispatch, job

class Twin(Job):
    n: int
    async def handle(self) -> int:
        return self.n

@job
async def twin_function(n: int) -> int:
    return n

if __name__ == "__main__":
    import program  # the worker's --app names the same file
    assert program.Twin is not Twin

    async def main() -> None:
        async with Manager("sync"):
            for work in (Twin(n=1), program.Twin(n=2)):
                print(await (await dispatch(work).send()).result(timeout=1))
            for function in (twin_function, program.twin_function):
                print(await (await dispatch(function, 3).send()).result(timeout=1))

    asyncio.run(main())
"""


def test_a_program_and_its_own_import_are_one(tmp_path: Path) -> None:
    """`python program.py` makes the classes as __main__, the import makes them again."""
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.stderr == ""
    assert done.stdout.split() == ["1", "2", "3", "3"]


async def test_a_manager_may_have_a_registry_of_its_own(own_registry: Registry) -> None:
    class Hidden(Job):
        async def handle(self) -> None: ...

    async with Manager("memory://", registry=Registry()):
        with pytest.raises(InvalidJob):
            await dispatch(Hidden()).send()
