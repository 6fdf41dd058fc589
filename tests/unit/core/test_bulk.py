"""Many jobs in one call: those that are like an earlier one are built from it, and are no different for that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from nimbusq import Job, Manager, Settings, dispatch, dispatch_many
from nimbusq.building import AS_IT_IS, build
from nimbusq.driver import Pushed
from nimbusq.envelope import Envelope
from nimbusq.errors import PayloadTooLarge, SerializationError
from nimbusq.receipt import Receipt
from nimbusq.registry import Registry


class Card(Job, queue="mail", retries=5, priority=2, timeout=30, tags=["post"], expires=60):
    to: Any = "a"

    async def handle(self) -> int:
        return 7


class Parcel(Job, queue="mail"):
    weight: int = 1

    async def handle(self) -> None: ...

    def tags(self) -> list[str]:
        return [f"{self.weight} kg"]


class Vase(Job, queue="mail"):
    room: str = "hall"

    async def handle(self) -> None: ...

    def overlap_key(self) -> str | None:
        return self.room


def kept(manager: Manager, monkeypatch: pytest.MonkeyPatch) -> list[Envelope]:
    """What the driver is given from now on."""
    given: list[Envelope] = []
    push = manager.adapter.push

    async def keep(envelopes: Sequence[Envelope], **options: Any) -> Sequence[Pushed]:
        given.extend(envelopes)
        return await push(envelopes, **options)

    monkeypatch.setattr(manager.adapter, "push", keep)
    return given


async def test_the_envelopes_and_receipts_are_those_of_single_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [
        Card(to="a"),
        Parcel(weight=1),
        Vase(),
        Card(to="b"),
        Parcel(weight=2),
        Vase(room="den"),
        Card(to=3),
    ]
    async with Manager("memory://") as manager:
        given = kept(manager, monkeypatch)
        receipts = await dispatch_many(jobs)
        alone = [await dispatch(job).send() for job in jobs]
        many, single = given[: len(jobs)], given[len(jobs) :]
        assert [replace(one, id="") for one in many] == [replace(one, id="") for one in single]
        assert many == [
            build(job, AS_IT_IS, manager, job_id=one.id) for job, one in zip(jobs, many, strict=True)
        ]
        assert [one.to_wire() for one in many] == [replace(one).to_wire() for one in many]
    assert [replace(one, id="") for one in receipts] == [replace(one, id="") for one in alone]
    assert [one.id for one in receipts] == [one.id for one in many]
    assert [repr(one) for one in receipts] == [repr(replace(one)) for one in receipts]


async def test_a_later_one_of_a_kind_is_checked_as_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Manager("memory://") as manager:
        given = kept(manager, monkeypatch)
        receipts = await dispatch_many(
            [Card(), Card(to="x" * 300_000), Card(to={1}), Card(to="y" * 600), Card()]
        )
    assert [one.status for one in receipts] == ["queued", "refused", "refused", "queued", "queued"]
    assert isinstance(receipts[1].error, PayloadTooLarge)
    assert isinstance(receipts[2].error, SerializationError)
    assert [one.body for one in given] == [b'{"to":"a"}', b'{"to":"%s"}' % (b"y" * 600), b'{"to":"a"}']


async def test_a_refused_one_does_not_stand_for_its_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Manager("memory://", registry=Registry()) as manager:
        given = kept(manager, monkeypatch)
        receipts = await dispatch_many([Card(), Card()])
    assert [one.status for one in receipts] == ["refused", "refused"]
    assert given == []


async def test_what_the_call_asks_is_for_that_job_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Manager("memory://") as manager:
        given = kept(manager, monkeypatch)
        await dispatch_many([Card(), dispatch(Card()).delay(5).on_queue("slow"), dispatch(Card())])
    assert [(one.delay, one.queue) for one in given] == [(0.0, "mail"), (5.0, "slow"), (0.0, "mail")]


async def test_jobs_that_ran_at_once_are_done() -> None:
    async with Manager("sync://"):
        receipts = await dispatch_many([Card(), Card(), dispatch(Card()).delay(5), Card()])
        assert [one.status for one in receipts] == ["done"] * 4
        assert [await one.result(timeout=1) for one in receipts] == [7] * 4


async def test_a_receipt_of_many_is_as_frozen_as_another() -> None:
    async with Manager("memory://"):
        receipts = await dispatch_many([Card(), Card()])
    assert {type(one) for one in receipts} == {Receipt}
    with pytest.raises(AttributeError):
        receipts[1].id = "another"  # type: ignore[misc]  # it is frozen


async def test_each_body_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Manager("memory://", settings=Settings(driver="memory://")) as manager:
        measured: list[int] = []
        check = manager.check_size

        def counted(envelope: Envelope) -> None:
            measured.append(len(envelope.body))
            check(envelope)

        monkeypatch.setattr(manager, "check_size", counted)
        await dispatch_many([Card(to="x" * 600), Card(to="x" * 700)])
    assert measured == [609, 709]
