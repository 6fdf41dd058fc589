"""dispatch(...): an immutable builder that says so when it is dropped."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from nimbusq import DuplicateJob, Job, Manager, NoManager, dispatch, dispatch_many, job
from nimbusq.builder import Dispatch, UnsentDispatchWarning
from nimbusq.building import AS_IT_IS, Asked, build
from nimbusq.driver import Claim, Lane, Pushed, Want
from nimbusq.envelope import Envelope, Overlap, Unique, decode
from nimbusq.errors import InvalidOption, SerializationError, StoreUnavailable
from nimbusq.ids import new_token


class Letter(Job, queue="mail", retries=5, priority=2, timeout=30, tags=["post"], expires=60):
    to: str = "a"

    async def handle(self) -> None: ...


async def stored(manager: Manager, queue: str = "mail") -> Envelope:
    """The one job that was sent, as a worker gets it."""
    want = Want(token=new_token(), limit=9, lease=60, lanes=(Lane(queue=queue, limit=9),))
    (claim,) = (await manager.adapter.claim(want)).claims
    assert isinstance(claim, Claim)
    assert isinstance(claim.envelope, Envelope)
    return claim.envelope


OPTIONS: dict[str, Callable[[Dispatch[Any]], Dispatch[Any]]] = {
    "delay": lambda d: d.delay(5),
    "at": lambda d: d.at(datetime(2030, 1, 1, tzinfo=UTC)),
    "on_queue": lambda d: d.on_queue("other"),
    "priority": lambda d: d.priority(9),
    "retries": lambda d: d.retries(1),
    "timeout": lambda d: d.timeout(9),
    "expires": lambda d: d.expires(9),
    "tags": lambda d: d.tags("x"),
    "unique": lambda d: d.unique("k"),
    "unique_for": lambda d: d.unique_for(9),
    "without_overlapping": lambda d: d.without_overlapping("k"),
    "rate_limit": lambda d: d.rate_limit("k", 2.5),
    "using": lambda d: d.using(object()),
}


@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_call_returns_a_copy_and_changes_nothing(option: str) -> None:
    first = dispatch(Letter())
    second = OPTIONS[option](first)
    asked, changed = first.disarm()[1], second.disarm()[1]
    assert second is not first
    assert asked == Asked()
    assert changed != asked


def test_every_option_has_a_call() -> None:
    changed: set[str] = set()
    for call in OPTIONS.values():
        asked = call(dispatch(Letter())).disarm()[1]
        changed |= {f.name for f in fields(Asked) if getattr(asked, f.name) != getattr(Asked(), f.name)}
    assert changed == {f.name for f in fields(Asked)}


async def test_a_builder_may_be_sent_more_than_once() -> None:
    async with Manager("memory://") as manager:
        builder = dispatch(Letter()).priority(3)
        first, second = await builder.send(), await builder.send()
        assert first.id != second.id
        assert (await manager.depth("mail")).pending == 2


async def test_the_jobs_own_options_are_the_defaults() -> None:
    async with Manager("memory://") as manager:
        await dispatch(Letter()).send()
        envelope = await stored(manager)
    assert (envelope.name, envelope.queue, envelope.max_attempts, envelope.priority) == (
        "Letter",
        "mail",
        6,
        2,
    )
    assert (envelope.timeout, envelope.expires_in, envelope.tags) == (30.0, 60.0, ("post",))
    assert (envelope.delay, envelope.unique, envelope.overlap) == (0.0, None, None)
    assert envelope.body == b'{"to":"a"}'


async def test_of_whom_nothing_is_asked_is_built_as_of_whom_it_is() -> None:
    """The short way and the long way to an envelope, which a builder with any call takes, end in equal ones."""

    class Tagged(Letter):
        def tags(self) -> list[str]:
            return [f"to-{self.to}"]

    class Keyed(Letter):
        def overlap_key(self) -> str:
            return self.to

    async with Manager("memory://") as manager:
        for kind in (Letter, Tagged, Keyed):
            one = kind(to="b")
            plain, asked = (build(one, how, manager, job_id="i") for how in (AS_IT_IS, Asked()))
            assert plain == asked
            assert plain.to_wire() == asked.to_wire() == replace(plain).to_wire()
        assert build(Tagged(to="c"), AS_IT_IS, manager).tags == ("post", "to-c")
        assert build(Keyed(to="c"), AS_IT_IS, manager).overlap == Overlap(key="c")


async def test_a_changed_copy_has_a_header_of_its_own() -> None:
    async with Manager("memory://") as manager:
        first = build(Letter(), AS_IT_IS, manager)
        assert first.to_wire() == build(Letter(), AS_IT_IS, manager, job_id=first.id).to_wire()
        other = replace(first, queue="other", priority=7)
        assert decode(other.to_wire()) == other


async def test_what_the_dispatch_asks_for_comes_first() -> None:
    async with Manager("memory://") as manager:
        asked = (
            dispatch(Letter(to="b")).on_queue("slow").retries(0).priority(10).timeout(timedelta(minutes=1))
        )
        await asked.expires(5).tags("now", "post").unique("k").without_overlapping("o", limit=2).send()
        envelope = await stored(manager, "slow")
    assert (envelope.queue, envelope.max_attempts, envelope.priority) == ("slow", 1, 10)
    assert (envelope.timeout, envelope.expires_in, envelope.tags) == (60.0, 5.0, ("post", "now"))
    assert envelope.unique == Unique(key="k")
    assert envelope.overlap == Overlap(key="o", limit=2)


@pytest.mark.parametrize(
    ("build", "delay"),
    [
        (lambda d: d.delay(90), 90.0),
        (lambda d: d.delay(timedelta(seconds=90)), 90.0),
        (lambda d: d.delay(minutes=1.5), 90.0),
        (lambda d: d.delay(30, minutes=1), 90.0),
        (lambda d: d.delay(hours=1), 3600.0),
        (lambda d: d.delay(90).delay(5), 5.0),
        (lambda d: d.delay(0), 0.0),
        (lambda d: d.at(datetime(2020, 1, 1, tzinfo=UTC)), 0.0),
        (lambda d: d.at(datetime(2020, 1, 1, tzinfo=UTC)).delay(7), 7.0),
        (lambda d: d.delay(7).at(datetime(2020, 1, 1, tzinfo=UTC)), 0.0),
    ],
)
async def test_delays(build: Callable[[Dispatch[Any]], Dispatch[Any]], delay: float) -> None:
    async with Manager("memory://") as manager:
        receipt = await build(dispatch(Letter())).send()
        view = await receipt.refresh()
        assert view is not None
        assert isinstance(view.envelope, Envelope)
        assert view.envelope.delay == delay
        depth = await manager.depth("mail")
        assert (depth.pending, depth.delayed) == ((0, 1) if delay else (1, 0))


# --- the forgotten send ----------------------------------------------------------------------------------------


def warned(build: Callable[[], object]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        build()
        gc.collect()
    return [str(warning.message) for warning in caught if warning.category is UnsentDispatchWarning]


def test_a_dropped_builder_warns_once() -> None:
    messages = warned(lambda: dispatch(Letter()).delay(5).priority(1))
    assert messages == ["dispatch(Letter(to='a')) was never sent: add .send()."]


def test_a_branch_that_was_not_taken_warns_too() -> None:
    def branch() -> None:
        base = dispatch(Letter())
        base.priority(1)
        base.priority(2)

    assert len(warned(branch)) == 2


async def test_what_was_sent_or_handed_over_does_not_warn() -> None:
    async with Manager("memory://"):
        await dispatch(Letter()).delay(5).send()
        await dispatch_many([dispatch(Letter()).delay(5), Letter()])
    assert warned(lambda: None) == []


def test_an_option_that_is_refused_does_not_warn_as_well() -> None:
    def refused() -> None:
        with pytest.raises(InvalidOption):
            dispatch(Letter()).priority(0)

    assert warned(refused) == []


async def test_awaiting_the_builder_itself_says_what_is_missing() -> None:
    with pytest.raises(TypeError, match=r"dispatch\(Letter\(to='a'\)\) is not sent yet: add \.send\(\)"):
        await dispatch(Letter())


# --- without a manager -----------------------------------------------------------------------------------------


async def test_without_a_manager_nothing_happens_and_the_receipt_says_so() -> None:
    """JD14."""
    receipt = await dispatch(Letter()).send()
    assert receipt.status == "disabled"
    assert [receipt.status for receipt in await dispatch_many([Letter(), Letter()])] == ["disabled"] * 2
    with pytest.raises(NoManager):
        await receipt.result(timeout=1)


async def test_in_strict_mode_it_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUEUE_BOOT_STRICT", "1")
    with pytest.raises(NoManager, match=r"nimbusq\.boot"):
        await dispatch(Letter()).send()
    with pytest.raises(NoManager):
        await dispatch_many([Letter()])


# --- duplicates ------------------------------------------------------------------------------------------------


async def test_a_second_unique_send_raises_with_the_holders_id() -> None:
    async with Manager("memory://"):
        first = await dispatch(Letter()).unique("k").send()
        with pytest.raises(DuplicateJob, match=first.id) as caught:
            await dispatch(Letter(to="b")).unique("k").send()
        assert (caught.value.job_id, caught.value.name, caught.value.key) == (first.id, "Letter", "k")


@pytest.mark.parametrize("on_duplicate", ["return", "skip"])
async def test_or_answers_with_the_holder(on_duplicate: Any) -> None:
    async with Manager("memory://") as manager:
        first = await dispatch(Letter()).unique("k").send()
        second = await dispatch(Letter()).unique("k", on_duplicate=on_duplicate).send()
        assert (second.status, second.id) == ("duplicate", first.id)
        assert (await manager.depth("mail")).pending == 1


async def test_a_lock_is_skipped_unless_asked_and_never_sees_a_slot() -> None:
    async with Manager("memory://"):
        first = await dispatch(Letter()).unique_for(60, key="k").send()
        second = await dispatch(Letter()).unique_for(60, key="k").send()
        assert (second.status, second.id) == ("duplicate", first.id)
        assert (await dispatch(Letter()).unique("k").send()).status == "queued"
        with pytest.raises(DuplicateJob):
            await dispatch(Letter()).unique_for(60, key="k", on_duplicate="raise").send()


async def test_without_a_key_the_arguments_decide() -> None:
    class Pair(Job):
        x: int
        y: int = 0

        async def handle(self) -> None: ...

    async with Manager("memory://"):
        await dispatch(Pair(x=1, y=2)).unique().send()
        await dispatch(Pair(x=2, y=1)).unique().send()
        with pytest.raises(DuplicateJob):
            await dispatch(Pair(y=2, x=1)).unique().send()


async def test_without_a_key_the_hook_decides() -> None:
    class Hooked(Job):
        x: int

        async def handle(self) -> None: ...

        def unique_id(self) -> str:
            return "always"

    async with Manager("memory://"):
        await dispatch(Hooked(x=1)).unique().send()
        with pytest.raises(DuplicateJob):
            await dispatch(Hooked(x=2)).unique().send()
        assert (await dispatch(Hooked(x=3)).send()).status == "queued", "dispatch alone never deduplicates"


# --- many ------------------------------------------------------------------------------------------------------


async def test_many_answer_in_order_with_one_call_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Manager("memory://") as manager:
        sizes: list[int] = []
        push = manager.adapter.push

        async def counted(envelopes: Any, **options: Any) -> Any:
            sizes.append(len(envelopes))
            return await push(envelopes, **options)

        monkeypatch.setattr(manager.adapter, "push", counted)
        receipts = await dispatch_many((Letter(to=str(n)) for n in range(25)), chunk=10)
        views = [await receipt.refresh() for receipt in receipts]
    assert sizes == [10, 10, 5]
    assert [view.envelope.body for view in views if view] == [  # type: ignore[union-attr]
        f'{{"to":"{n}"}}'.encode() for n in range(25)
    ]


async def test_while_many_are_built_others_have_their_turn() -> None:
    """Half a millisecond's work at a time: the chunk before must get onto its way, and a server must answer."""
    turns: list[int] = []
    built = 0

    def letters() -> Iterator[Letter]:
        nonlocal built
        for _ in range(500):
            built += 1
            yield Letter()

    async def other() -> None:
        while built < 500:
            turns.append(built)
            await asyncio.sleep(0)

    async with Manager("memory://") as manager, asyncio.TaskGroup() as group:
        group.create_task(other())
        assert len(await dispatch_many(letters(), manager=manager)) == 500
    assert max(after - before for before, after in pairwise(turns)) <= 50


async def test_a_bad_one_among_many_is_refused_alone() -> None:
    class Odd(Job):
        value: Any

        async def handle(self) -> None: ...

    async with Manager("memory://") as manager:
        held = await dispatch(Letter()).unique("k").send()
        receipts = await dispatch_many(
            [
                Letter(),
                Odd(value={1}),
                dispatch(Letter(to="x" * 300_000)),
                dispatch(Letter()).unique("k"),
                dispatch(Letter()).using(object()),
                dispatch(Letter()).delay(5),
            ]
        )
        assert [receipt.status for receipt in receipts] == [
            "queued", "refused", "refused", "duplicate", "refused", "queued",
        ]  # fmt: skip
        assert isinstance(receipts[1].error, SerializationError)
        assert receipts[3].id == held.id
        with pytest.raises(SerializationError):
            await receipts[1].result()
        depth = await manager.depth("mail")
        assert (depth.pending, depth.delayed) == (2, 1)


async def test_none_of_many_is_no_call() -> None:
    async with Manager("memory://"):
        assert await dispatch_many([]) == []


# --- functions -------------------------------------------------------------------------------------------------


async def test_a_job_function_stays_callable() -> None:
    @job(queue="mail")
    async def double(n: int, by: int = 2) -> int:
        """Multiply."""
        return n * by

    assert await double(4) == 8
    assert double.__doc__ == "Multiply."
    assert double.__name__ == "double"
    async with Manager("sync"):
        receipt = await dispatch(double, 5, by=3).send()
        assert await receipt.result(timeout=1) == 15


async def test_a_job_function_may_be_a_static_member() -> None:
    class Tasks:
        @job
        async def triple(n: int) -> int:  # noqa: N805  # it is bound to nothing
            return 3 * n

    assert await Tasks.triple(2) == 6
    assert await Tasks().triple(2) == 6


async def test_parameters_may_have_the_names_of_options() -> None:
    @job
    async def configure(queue: str, retries: int, name: str, options: dict[str, int]) -> list[Any]:
        return [queue, retries, name, options]

    async with Manager("sync"):
        receipt = await dispatch(configure, queue="a", retries=1, name="b", options={"x": 1}).send()
        assert await receipt.result(timeout=1) == ["a", 1, "b", {"x": 1}]


# --- many at once ----------------------------------------------------------------------------------------------


async def test_a_chunk_is_at_least_one_job() -> None:
    async with Manager("memory://"):
        with pytest.raises(InvalidOption, match="chunk is 1 or more"):
            await dispatch_many([], chunk=0)


async def test_an_error_on_the_way_is_all_that_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """The builders that it has left unsent do not warn besides; what was under way is not cut."""
    async with Manager("memory://") as manager:
        pushed: list[int] = []

        async def push(envelopes: Sequence[Envelope], *, tx: object | None = None) -> Sequence[Pushed]:
            pushed.append(len(envelopes))
            raise StoreUnavailable("away")

        monkeypatch.setattr(manager.adapter, "push", push)
        jobs = [dispatch(Letter(to=str(n))) for n in range(30)]
        with pytest.raises(StoreUnavailable, match="away"):
            await dispatch_many(jobs, chunk=10)
        del jobs
        gc.collect()
    assert pushed == [10]


async def test_an_iterable_that_raises_leaves_what_was_sent_before() -> None:
    def some() -> Iterator[Job]:
        for n in range(25):
            yield Letter(to=str(n))
        raise LookupError("no more")

    async with Manager("memory://") as manager:
        with pytest.raises(LookupError):
            await dispatch_many(some(), chunk=10)
        assert (await manager.depth("mail")).pending == 20
