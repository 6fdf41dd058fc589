"""B14: what a worker gets is what was sent, or the sender gets the error."""

from __future__ import annotations

import enum
import math
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from ipaddress import IPv4Address
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

import pytest
from pydantic import AwareDatetime, BaseModel, Field, SecretStr, field_serializer

from nimbusq import Job, Manager, dispatch, job
from nimbusq.codec import JsonCodec
from nimbusq.errors import SerializationError, UnreadableJob

codec = JsonCodec()


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Address(BaseModel):
    street: str
    number: int = 1


class Special(Address):
    floor: int = 0


@dataclass(frozen=True)
class Point:
    x: int
    y: float = 0.0


@dataclass
class Line:
    ends: list[Point] = field(default_factory=list)


BERLIN = ZoneInfo("Europe/Berlin")

TRAVELS: list[tuple[Any, Any]] = [
    (int, 2**80),
    (int, -1),
    (bool, True),
    (str, "family: \N{MAN}\N{ZERO WIDTH JOINER}\N{WOMAN}"),
    (str, "\0 and \\u0000"),
    (str, "</script><svg onload=alert(1)>"),
    (str, "x" * 60_000),
    (float, 0.1),
    (float, math.inf),
    (float, -math.inf),
    (float, math.nan),
    (float, 1e-320),
    (float, 3),
    (bytes, b"\xff\x00"),
    (bytes, b""),
    (Decimal, Decimal("0.10")),
    (uuid.UUID, uuid.UUID("018f4c7e-0000-7000-8000-000000000000")),
    (datetime, datetime(2026, 11, 29, 12, 0, 0, 1, tzinfo=UTC)),
    (datetime, datetime(2026, 11, 29, 12, 0, tzinfo=timezone(timedelta(hours=-3, minutes=-30)))),
    (datetime, datetime(2026, 11, 29, 12, 0, tzinfo=BERLIN)),
    (datetime, datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=BERLIN)),
    (AwareDatetime, datetime(2026, 11, 29, tzinfo=UTC)),
    (date, date(2026, 2, 28)),
    (time, time(12, 30, 1)),
    (timedelta, timedelta(days=1, microseconds=1)),
    (timedelta, -timedelta(seconds=1)),
    (set[int], {1, 2, 3}),
    (frozenset[str], frozenset({"a", "b"})),
    (tuple[int, str], (1, "a")),
    (tuple[int, ...], (1, 2, 3)),
    (list[bytes], [b"\x80"]),
    (dict[int, str], {1: "a", 2: "b"}),
    (dict[str, list[Decimal]], {"a": [Decimal("1.50")]}),
    (Mapping[str, int], {"a": 1}),
    (Colour, Colour.RED),
    (Level, Level.HIGH),
    (Literal["a", "b"], "a"),
    (Address, Address(street="x")),
    (list[Address], [Address(street="x"), Address(street="y", number=2)]),
    (Point, Point(1, 2.5)),
    (Line, Line([Point(1), Point(2)])),
    (IPv4Address, IPv4Address("127.0.0.1")),
    (PurePosixPath, PurePosixPath("/a/b")),
    (int | None, None),
    (str | int, "5"),
    (int | str, 5),
    (Annotated[int, Field(gt=0)], 5),
    (Any, {"a": [1, 2.5, None, "x"]}),
]
"""Annotation, value: equal in value and type when it arrives."""

CANNOT: list[tuple[Any, Any]] = [
    (Any, {1: "a"}),  # arrives as {"1": "a"}
    (Any, (1, 2)),  # arrives as a list
    (Any, {1, 2}),
    (Any, Decimal("0.10")),
    (Any, b"\xff\x00"),
    (Any, datetime(2026, 11, 29, tzinfo=UTC)),
    (Any, Address(street="x")),
    (Any, object()),
    (Any, lambda: None),
    (Any, math.nan),
    (dict[str, Any] | Address, Address(street="x")),  # arrives as a dict
    (Address, Special(street="x", floor=3)),  # the subclass and its field are gone
    (list[Any], [Fraction(1, 3)]),
    (SecretStr, SecretStr("hunter2")),  # arrives as asterisks
    (str, "\ud800"),
]
"""Annotation, value: refused by the send, whatever pydantic thinks of it."""


def job_with(annotation: Any, value: Any) -> Job:
    class Carrier(Job):
        value: annotation  # type: ignore[valid-type]  # made for each case

        async def handle(self) -> None: ...

    return Carrier.model_construct(value=value) if value is not None else Carrier(value=None)


def name_of(value: object) -> str:
    """Stable from process to process: no addresses, no order of a set."""
    text = repr(sorted(value, key=repr)) if isinstance(value, set | frozenset) else repr(value)
    return re.sub(r" at 0x[0-9a-f]+", "", text)[-40:]


@pytest.mark.parametrize(("annotation", "value"), TRAVELS, ids=name_of)
def test_it_arrives_as_it_was_sent(annotation: Any, value: Any) -> None:
    sent = job_with(annotation, value)
    received = codec.decode(type(sent), codec.encode(sent)).value  # type: ignore[attr-defined]
    if isinstance(value, datetime):
        assert received.timestamp() == value.timestamp()
    elif isinstance(value, float) and math.isnan(value):
        assert math.isnan(received)
    else:
        assert received == value
    assert type(received) is (float if annotation is float else type(value))


@pytest.mark.parametrize(("annotation", "value"), CANNOT, ids=name_of)
def test_what_would_not_arrive_is_refused_by_the_sender(annotation: Any, value: Any) -> None:
    with pytest.raises(SerializationError, match="Carrier"):
        codec.encode(job_with(annotation, value))


@pytest.mark.parametrize(("annotation", "value"), CANNOT, ids=name_of)
async def test_and_nothing_is_stored(annotation: Any, value: Any) -> None:
    async with Manager("memory://") as manager:
        with pytest.raises(SerializationError):
            await dispatch(job_with(annotation, value)).send()
        depth = await manager.depth()
    assert (depth.pending, depth.delayed) == (0, 0)


@pytest.mark.parametrize(("annotation", "value"), TRAVELS, ids=name_of)
async def test_functions_and_results_keep_the_same_promise(annotation: Any, value: Any) -> None:
    async def echo(value):  # type: ignore[no-untyped-def]
        seen.append(value)
        return value

    echo.__annotations__ = {"value": annotation, "return": annotation}
    seen: list[Any] = []
    async with Manager("sync"):
        receipt = await dispatch(job(name="echo")(echo), value=value).send()
        returned = await receipt.result(timeout=1)
    for received in (seen[0], returned):
        if isinstance(value, float) and math.isnan(value):
            assert math.isnan(received)
        elif isinstance(value, datetime):
            assert received.timestamp() == value.timestamp()
        else:
            assert received == value


def test_the_message_shows_what_would_arrive() -> None:
    with pytest.raises(SerializationError) as caught:
        codec.encode(job_with(Any, (1, 2)))
    assert str(caught.value).startswith("Carrier: value=(1, 2) (tuple) would arrive as [1, 2] (list).")


def test_a_secret_is_not_shown_in_the_message() -> None:
    with pytest.raises(SerializationError) as caught:
        codec.encode(job_with(SecretStr, SecretStr("hunter2")))
    assert "hunter2" not in str(caught.value)


def test_a_field_that_changes_on_its_way_is_noticed() -> None:
    class Rounded(Job):
        price: float

        @field_serializer("price")
        def _round(self, price: float) -> float:
            return round(price, 2)

        async def handle(self) -> None: ...

    codec.encode(Rounded(price=1.25))
    with pytest.raises(SerializationError, match="price"):
        codec.encode(Rounded(price=1.256))


def test_fields_travel_under_their_aliases() -> None:
    class Aliased(Job):
        user_id: int = Field(alias="userId")

        async def handle(self) -> None: ...

    body = codec.encode(Aliased(userId=3))
    assert body == b'{"userId":3}'
    assert codec.decode(Aliased, body).user_id == 3


def test_a_deep_value_is_an_error_and_no_crash() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(SerializationError):
        codec.encode(job_with(Any, deep))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not json",
        b"[]",
        b"null",
        b'{"n":"many"}',
        b'{"n":1',
        b"\xff\xfe",
        b"[" * 1_000_000,
        b'{"n":NaN}',
    ],
)
def test_bodies_that_cannot_be_read(body: bytes) -> None:
    class Small(Job):
        n: int

        async def handle(self) -> None: ...

    with pytest.raises(UnreadableJob, match="the arguments of Small cannot be read"):
        codec.decode(Small, body)


def test_a_field_that_was_never_set_is_refused() -> None:
    class Count(Job):
        n: int
        by: int

        async def handle(self) -> None: ...

    with pytest.raises(SerializationError, match="could not read"):
        codec.encode(Count.model_construct(n=1))
