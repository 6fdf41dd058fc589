"""What a job says of itself: inherited, checked, and never guessed from a misspelling."""

from __future__ import annotations

from dataclasses import fields
from datetime import timedelta
from typing import Any

import pytest

from nimbusq import Job, job
from nimbusq.errors import InvalidOption
from nimbusq.jobs import HOOKS
from nimbusq.options import JobOptions
from nimbusq.retry import Backoff


def test_the_defaults() -> None:
    class Plain(Job):
        async def handle(self) -> None: ...

    options = Plain.options
    assert (options.name, options.queue, options.retries, options.priority) == ("Plain", "default", 3, 5)
    assert (options.timeout, options.expires, options.backoff, options.runs_in) == (None, None, None, None)
    assert (options.tags, options.aliases, options.silenced, options.dont_retry) == ((), (), False, ())


def test_options_are_inherited_and_overridden() -> None:
    class Base(Job, queue="mail", retries=7, tags=["base"]):
        pass

    class Child(Base, retries=1):
        async def handle(self) -> None: ...

    class Grandchild(Child, queue="slow"):
        pass

    assert (Child.options.queue, Child.options.retries, Child.options.tags) == ("mail", 1, ("base",))
    assert (Grandchild.options.queue, Grandchild.options.retries) == ("slow", 1)
    assert (Child.options.name, Grandchild.options.name) == ("Child", "Grandchild")
    assert Base.options.retries == 7


def test_a_name_and_its_aliases_are_not_inherited() -> None:
    class Old(Job, name="mail.send", aliases=["SendMail"]):
        async def handle(self) -> None: ...

    class New(Old):
        pass

    assert Old.options.name == "mail.send"
    assert (New.options.name, New.options.aliases) == ("New", ())


def test_durations_may_be_timedeltas() -> None:
    class Timed(Job, timeout=timedelta(minutes=1), expires=timedelta(hours=1), unique_for=timedelta(days=1)):
        async def handle(self) -> None: ...

    assert (Timed.options.timeout, Timed.options.expires, Timed.options.unique_for) == (60.0, 3600.0, 86400.0)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("retrys", "retries"), ("que", "queue"), ("time_out", "timeout"), ("prio", "priority"), ("tag", "tags")],
)
def test_a_misspelt_option_is_an_error_with_a_suggestion(wrong: str, right: str) -> None:
    with pytest.raises(
        TypeError, match=rf"class Wrong: unknown job option '{wrong}'\. Did you mean '{right}'\?"
    ):

        class Wrong(Job, **{wrong: 1}):  # type: ignore[arg-type]
            async def handle(self) -> None: ...

    with pytest.raises(TypeError, match=f"Did you mean '{right}'"):

        @job(**{wrong: 1})
        async def wrong_function() -> None: ...


def test_an_option_like_nothing_else_lists_them_all() -> None:
    with pytest.raises(TypeError, match=r"unknown job option 'zzz'\. The options are: .*queue"):

        class Wrong(Job, zzz=1):
            async def handle(self) -> None: ...


RESERVED = sorted({*HOOKS, "options", *(spec.name for spec in fields(JobOptions))} - {"name"})


@pytest.mark.parametrize("name", RESERVED)
@pytest.mark.filterwarnings("ignore:Field name")  # pydantic says so too, of those that Job has
def test_a_field_must_not_bear_the_name_of_a_hook_or_an_option(name: str) -> None:
    with pytest.raises(TypeError, match=f"the field '{name}' has the name of a job option or hook"):
        type("Wrong", (Job,), {"__annotations__": {name: int}, "__module__": __name__})


def test_a_field_may_be_called_name() -> None:
    """Too many jobs have one, and nobody takes it for the option."""

    class Greet(Job):
        name: str

        async def handle(self) -> None: ...

    assert (Greet(name="you").name, Greet.options.name) == ("you", "Greet")


BAD: list[tuple[str, Any]] = [
    ("retries", -1),
    ("retries", 10**9 * 10),
    ("priority", 0),
    ("timeout", 0),
    ("timeout", -1),
    ("expires", "soon"),
    ("backoff", []),
    ("backoff", [-1]),
    ("backoff", "fast"),
    ("backoff", float("inf")),
    ("tags", 5),
    ("tags", ["a\0"]),
    ("dont_retry", ["ValueError"]),
    ("dont_retry", ValueError()),
    ("dont_retry", (int,)),
    ("runs_in", "cloud"),
    ("unique_for", 0),
    ("overlap_limit", 0),
    ("max_releases", -1),
    ("release_after", -1),
    ("release_after", "3"),
    ("expire_after", 0),
    ("silenced", "no"),
]


@pytest.mark.parametrize(("option", "value"), BAD)
def test_a_value_outside_its_range(option: str, value: Any) -> None:
    with pytest.raises(InvalidOption):

        class Wrong(Job, **{option: value}):
            async def handle(self) -> None: ...


@pytest.mark.parametrize(
    "backoff", [0, 1.5, [1, 5, 10], (0,), Backoff(base=1), lambda attempt: attempt, None]
)
def test_every_form_of_a_backoff(backoff: Any) -> None:
    class Right(Job, backoff=backoff):
        async def handle(self) -> None: ...

    assert Right.options.backoff == backoff


def test_one_error_is_as_good_as_a_list_of_them() -> None:
    class Right(Job, dont_retry=KeyError, tags="one"):
        async def handle(self) -> None: ...

    assert (Right.options.dont_retry, Right.options.tags) == ((KeyError,), ("one",))
