"""Bad input gets a clear error, and nothing is stored."""

from __future__ import annotations

import functools
import math
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from nimbusq import ConfigError, Job, Manager, Settings, dispatch, dispatch_many, job
from nimbusq.builder import Dispatch
from nimbusq.driver import Depth
from nimbusq.errors import (
    DispatchError,
    InvalidJob,
    InvalidName,
    InvalidOption,
    InvalidUniqueKey,
    PayloadTooLarge,
    SerializationError,
    UnknownDriver,
)

BAD_NAMES = [
    "",
    "a\0b",
    "../../x",
    "q:delayed",
    "a:leased",
    "{other}",
    "{x}",
    "a}b{c",
    "we}ird",
    "*",
    "[a-z]*",
    "x" * 65,
    "x" * 10_000,
    'jobs"; drop table queue_jobs;--',
    "'||pg_sleep(5)||'",
    "\r\nSET x 1",
    "q\n",
    "%s",
    "${jndi:x}",
    "__class__",
    "\u202eevil",
    "\ud800",
    ".fifo",
    "..",
    "-rf",
    "\u00e9t\u00e9",
    "a b",
    " ",
    "\uff41",
    None,
    5,
    b"mail",
    ["mail"],
]
GOOD_NAMES = ["a", "A-b_c.9", "os.system", "0", "x" * 64, "mail.fifo", "jobs--"]


class Mail(Job):
    n: int = 0
    text: str = ""

    async def handle(self) -> None: ...


@pytest.fixture
async def manager() -> AsyncIterator[Manager]:
    """A manager whose store must be empty at the end."""
    async with Manager("memory://") as manager:
        yield manager
        for queue in ("default", "mail"):
            assert await manager.depth(queue) == Depth(queue=queue, pending=0, delayed=0, running=0)


@pytest.mark.parametrize("name", BAD_NAMES, ids=lambda name: ascii(name)[:30])
async def test_a_queue_name_outside_the_grammar(manager: Manager, name: Any) -> None:
    with pytest.raises(InvalidName, match="queue name") as caught:
        await dispatch(Mail()).on_queue(name).send()
    str(caught.value).encode()
    assert len(str(caught.value)) < 300
    with pytest.raises(InvalidName):
        await manager.depth(name)


@pytest.mark.parametrize("name", BAD_NAMES, ids=lambda name: ascii(name)[:30])
def test_names_of_jobs_aliases_and_queues_obey_the_same_grammar(name: Any) -> None:
    options: dict[str, Any]
    for options in ({"name": name}, {"aliases": [name]}, {"queue": name}):
        with pytest.raises(InvalidName):

            class Bad(Job, **options):
                async def handle(self) -> None: ...


@pytest.mark.parametrize("name", GOOD_NAMES)
async def test_names_within_the_grammar(name: str) -> None:
    async with Manager("memory://") as manager:
        await dispatch(Mail()).on_queue(name).send()
        assert (await manager.depth(name)).pending == 1


Wrong = tuple[Callable[[Dispatch[Any]], Dispatch[Any]], str]

BAD_OPTIONS: dict[str, Wrong] = {
    "priority 0": (lambda d: d.priority(0), "priority is an integer from 1"),
    "priority 11": (lambda d: d.priority(11), "priority"),
    "priority 1.0": (lambda d: d.priority(1.0), "priority"),  # type: ignore[arg-type]
    "priority true": (lambda d: d.priority(True), "priority"),
    "priority text": (lambda d: d.priority("1"), "priority"),  # type: ignore[arg-type]
    "retries -1": (lambda d: d.retries(-1), "retries is an integer of 0 or more"),
    "retries 2**31": (lambda d: d.retries(2**31), "retries"),
    "retries 1.5": (lambda d: d.retries(1.5), "retries"),  # type: ignore[arg-type]
    "delay -5": (lambda d: d.delay(-5), "delay takes seconds"),
    "delay nan": (lambda d: d.delay(math.nan), "delay"),
    "delay inf": (lambda d: d.delay(math.inf), "delay"),
    "delay 10**12": (lambda d: d.delay(10**12), "delay"),
    "delay huge int": (lambda d: d.delay(10**400), "delay"),
    "delay text": (lambda d: d.delay("5"), "delay"),  # type: ignore[arg-type]
    "delay true": (lambda d: d.delay(True), "delay"),
    "delay minutes": (lambda d: d.delay(minutes=-1), "delay"),
    "delay timedelta": (lambda d: d.delay(timedelta(seconds=-1)), "delay"),
    "at naive": (lambda d: d.at(datetime(2026, 1, 1)), "aware datetime"),  # noqa: DTZ001  # that is the fault
    "at text": (lambda d: d.at("2026-01-01"), "aware datetime"),  # type: ignore[arg-type]
    "timeout 0": (lambda d: d.timeout(0), "timeout must be more than 0"),
    "timeout -1": (lambda d: d.timeout(-1), "timeout"),
    "expires 0": (lambda d: d.expires(0), "expires"),
    "tags empty": (lambda d: d.tags(""), "tags"),
    "tags long": (lambda d: d.tags("x" * 129), "tags"),
    "tags many": (lambda d: d.tags(*map(str, range(33))), "tags"),
    "tags number": (lambda d: d.tags(5), "tags"),  # type: ignore[arg-type]
    "tags nul": (lambda d: d.tags("a\0b"), "tags"),
    "tags surrogate": (lambda d: d.tags("\ud800"), "tags"),
    "on_duplicate": (lambda d: d.unique(on_duplicate="ignore"), "on_duplicate"),  # type: ignore[arg-type]
    "unique_for 0": (lambda d: d.unique_for(0), "unique_for"),
    "rate 0": (lambda d: d.rate_limit("k", 0), "per_second"),
    "rate nan": (lambda d: d.rate_limit("k", math.nan), "per_second"),
    "burst 0": (lambda d: d.rate_limit("k", 1, burst=0), "burst"),
    "overlap limit": (lambda d: d.without_overlapping("k", limit=0), "overlap limit"),
    "overlap delay": (lambda d: d.without_overlapping("k", release_after=-1), "release_after"),
    "overlap short": (
        lambda d: d.without_overlapping("k", expire_after=1),
        "expire_after=1 is below the lease",
    ),
    "max_releases": (lambda d: d.without_overlapping("k", max_releases=-1), "max_releases"),
}


@pytest.mark.parametrize("case", BAD_OPTIONS)
async def test_an_option_outside_its_range(manager: Manager, case: str) -> None:
    option, message = BAD_OPTIONS[case]
    with pytest.raises(InvalidOption, match=message):
        await option(dispatch(Mail())).send()


@pytest.mark.parametrize(
    "when", [datetime(9999, 12, 31, tzinfo=UTC), datetime(1, 1, 1, tzinfo=UTC)], ids=["9999", "1"]
)
async def test_instants_at_the_ends_of_time(when: datetime) -> None:
    """A past one means now; one that no store can hold is refused."""
    async with Manager("memory://") as manager:
        if when.year == 1:
            await dispatch(Mail()).at(when).send()
            assert (await manager.depth()).pending == 1
        else:
            with pytest.raises(InvalidOption, match="delay"):
                await dispatch(Mail()).at(when).send()
            assert (await manager.depth()).delayed == 0


BAD_KEYS = {
    "empty": "",
    "257 bytes": "x" * 257,
    "129 times two bytes": "\u00e9" * 129,
    "NUL": "a\0b",
    "lone surrogate": "\ud800",
    "number": 5,
    "bytes": b"k",
}


@pytest.mark.parametrize("case", BAD_KEYS)
async def test_a_key_that_breaks_the_rules(manager: Manager, case: str) -> None:
    """UB: Cyclone's rules, before anything is stored."""
    key: Any = BAD_KEYS[case]
    for option in (Dispatch.unique, Dispatch.without_overlapping):
        with pytest.raises(InvalidUniqueKey):
            await option(dispatch(Mail()), key).send()
    with pytest.raises(InvalidUniqueKey):
        await dispatch(Mail()).unique_for(60, key=key).send()


@pytest.mark.parametrize("key", ["x" * 256, "\u00e9" * 128, "data.id' OR '1'='1", "k", "K", " "])
async def test_a_key_within_the_rules(key: str) -> None:
    async with Manager("memory://"):
        assert (await dispatch(Mail()).unique(key).send()).status == "queued"
        assert (await dispatch(Mail()).unique(key, on_duplicate="return").send()).status == "duplicate"


async def test_a_hooks_key_is_checked_too(manager: Manager) -> None:
    class Hooked(Job):
        async def handle(self) -> None: ...

        def unique_id(self) -> str:
            return ""

        def overlap_key(self) -> str | None:
            return "\0"

    with pytest.raises(InvalidUniqueKey):
        await dispatch(Hooked()).send()
    with pytest.raises(InvalidUniqueKey):
        await dispatch(Hooked()).unique().send()


async def test_a_body_that_is_too_large(manager: Manager) -> None:
    with pytest.raises(
        PayloadTooLarge, match=r"job Mail takes .* bytes; the sync driver carries at most 262,144"
    ):
        await dispatch(Mail(text="x" * 262_144)).send()


async def test_a_body_is_measured_in_bytes() -> None:
    async with Manager("memory://", settings=Settings(max_body=16 * 1024)):
        await dispatch(Mail(text="x" * 16_000)).send()
        with pytest.raises(PayloadTooLarge):
            await dispatch(Mail(text="\u20ac" * 6_000)).send()


NOT_JOBS: dict[str, Any] = {
    "lambda": lambda: None,
    "function": datetime.now,
    "builtin": print,
    "partial": functools.partial(print),
    "class": Mail,
    "text": "Mail",
    "None": None,
    "object": object(),
}


@pytest.mark.parametrize("case", NOT_JOBS)
async def test_what_is_no_job(manager: Manager, case: str) -> None:
    with pytest.raises(InvalidJob) as caught:
        dispatch(NOT_JOBS[case])
    assert isinstance(caught.value, TypeError)
    (receipt,) = await dispatch_many([NOT_JOBS[case]])
    assert receipt.status == "refused"
    assert isinstance(receipt.error, InvalidJob)


def test_what_cannot_become_a_job() -> None:
    with pytest.raises(InvalidJob, match="a lambda has no name"):
        job(lambda: None)
    with pytest.raises(InvalidJob, match="takes a function"):
        job(Mail)
    with pytest.raises(InvalidJob, match="cannot travel"):

        @job
        async def spread(*args: int) -> None: ...

    with pytest.raises(InvalidJob, match="cannot travel"):

        @job
        async def positional(a: int, /) -> None: ...

    with pytest.raises(InvalidJob, match="cannot be resolved"):

        @job
        async def unresolved(a: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821  # that is the fault


async def test_a_class_without_handle_is_no_job(manager: Manager) -> None:
    class Base(Job, queue="mail"):
        n: int = 0

    with pytest.raises(InvalidJob, match="does not define handle"):
        await dispatch(Base()).send()


async def test_arguments_that_do_not_fit_the_function(manager: Manager) -> None:
    @job
    async def add(a: int, b: int = 0) -> int:
        return a + b

    with pytest.raises(TypeError):
        dispatch(add)
    with pytest.raises(TypeError):
        dispatch(add, 1, c=2)
    with pytest.raises(SerializationError, match="add: a"):
        dispatch(add, "many")
    with pytest.raises(SerializationError, match="a='5'"):
        dispatch(add, "5")
    with pytest.raises(InvalidJob, match="arguments of Mail are its fields"):
        dispatch(Mail(), 1)


@pytest.mark.parametrize(
    "driver", ["kafak", "", "redis2://x", "mongodb://user:secret@host/db", "::", "http://x"]
)
def test_an_unknown_driver(driver: str) -> None:
    with pytest.raises(UnknownDriver, match="no driver is called") as caught:
        Manager(driver)
    assert "secret" not in str(caught.value)
    assert "redis" in str(caught.value), "the message lists those that there are"


@pytest.mark.parametrize("url", ["sync://host", "memory:///x", "sync://?a=1"])
def test_an_address_that_the_driver_cannot_use(url: str) -> None:
    with pytest.raises(ConfigError, match="sync driver has no address"):
        Manager(url)


def test_every_refusal_is_a_dispatch_error() -> None:
    refusals = (InvalidOption, InvalidName, InvalidUniqueKey, InvalidJob, SerializationError, PayloadTooLarge)
    assert all(issubclass(refusal, DispatchError) for refusal in refusals)
