"""The window: jobs finish in any order, the committed offset never passes one that has not."""

from __future__ import annotations

import base64
import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nimbusq_kafka.metadata import OWNER_BYTES, Marks, decode, encode
from nimbusq_kafka.window import FULL, HARD_LIMIT, SPAN, Window

OWNER = b"owner-01"
OFFSETS = st.integers(0, 300)

marks = st.builds(
    lambda owner, done, running, lost: Marks(
        owner=owner, done=done, running=tuple(sorted(running)), lost=tuple(sorted(lost.items()))
    ),
    owner=st.binary(min_size=OWNER_BYTES, max_size=OWNER_BYTES),
    done=st.integers(0, 2**3000),
    running=st.sets(st.integers(0, 10**7)),
    lost=st.dictionaries(st.integers(0, 10**7), st.integers(1, 10**4)),
)


@given(marks)
def test_metadata_comes_back_as_it_was_written(given_marks: Marks) -> None:
    assert decode(encode(given_marks)) == given_marks


@given(st.text(max_size=200))
def test_any_other_text_is_no_metadata_and_no_error(text: str) -> None:
    found = decode(text)
    assert found is None or isinstance(found, Marks)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x" + base64.b64encode(OWNER).decode(),
        "p",
        "pAAAA",
        "p!!!!",
        "z" + base64.b64encode(b"not deflated").decode(),
        "p" + base64.b64encode(OWNER + b"\xff").decode(),  # a number without its end
        "p" + base64.b64encode(OWNER + b"\x05\x01").decode(),  # fewer numbers than announced
    ],
)
def test_damaged_metadata_is_none(text: str) -> None:
    assert decode(text) is None


def test_a_bomb_does_not_inflate() -> None:
    bomb = "z" + base64.b64encode(zlib.compress(OWNER + b"\0\0" + b"\xff" * (64 << 20))).decode()
    found = decode(bomb)
    assert found is not None
    assert found.done.bit_length() <= 8 << 20


class Model:
    """The same by sets, without a thought for size."""

    def __init__(self, base: int) -> None:
        self.start, self.done, self.running, self.lost = base, set[int](), set[int](), dict[int, int]()

    @property
    def base(self) -> int:
        base = self.start
        while base in self.done:
            base += 1
        return base


steps = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["start", "withdraw", "finish"]), OFFSETS),
        st.tuples(st.just("skip"), st.tuples(OFFSETS, st.integers(0, 40))),
        st.tuples(st.just("crash"), st.none()),
        st.tuples(st.just("commit"), st.none()),
    ),
    max_size=120,
)


@given(st.integers(0, 50), steps)
def test_a_window_agrees_with_a_model(first: int, program: list[tuple[str, object]]) -> None:
    window, model = Window(first), Model(first)
    committed = first, ""
    at_commit = (set[int](), set[int](), dict[int, int]())
    for step, argument in program:
        match step, argument:
            case "commit", _:
                committed = window.base, window.write(OWNER)
                at_commit = set(model.done), set(model.running), dict(model.lost)
            case "crash", _:
                window, owner = Window.read(*committed)
                assert owner == (OWNER if committed[1] else b"")
                model.done, model.running, model.lost = (type(part)(part) for part in at_commit)
                assert window.take_over() == model.running
                for offset in model.running:
                    model.lost[offset] = model.lost.get(offset, 0) + 1
                model.running = set()
            case "skip", (int(start), int(length)):
                offsets = set(range(max(start, model.base), start + length)) - model.running
                if offsets == set(range(max(start, model.base), start + length)):
                    window.skip(start, start + length)
                    model.done |= offsets
            case "start", int(offset) if offset >= model.base and offset not in model.done:
                window.start(offset)
                model.running.add(offset)
            case "withdraw", int(offset):
                window.withdraw(offset)
                model.running.discard(offset)
            case "finish", int(offset) if offset >= model.base:
                window.finish(offset)
                model.done.add(offset)
                model.running.discard(offset)
                model.lost.pop(offset, None)
        assert window.base == model.base, "never past an unfinished offset, never behind a finished one"
        assert window.running == model.running
        assert {offset: window.lost.get(offset, 0) for offset in model.lost if offset not in model.done} == {
            offset: count for offset, count in model.lost.items() if offset not in model.done
        }
        assert window.finished == len([offset for offset in model.done if offset > model.base])
        assert all(
            window.is_done(offset) == (offset < model.base or offset in model.done) for offset in range(350)
        )


def test_a_lost_run_counts_once_for_each_owner_that_left_it() -> None:
    window = Window(7)
    for times in (1, 2, 3):
        window.start(9)
        window, _ = Window.read(window.base, window.write(OWNER))
        assert window.take_over() == {9}
        assert window.lost == {9: times}
    window.finish(9)
    assert window.lost == {}


def test_a_claim_that_is_withdrawn_counts_for_nobody() -> None:
    window = Window(0)
    window.start(3)
    window.withdraw(3)
    window, _ = Window.read(0, window.write(OWNER))
    assert window.take_over() == frozenset()
    assert not window.is_done(3)


def _size(span: int, unfinished: set[int]) -> int:
    window = Window(0)
    window.skip(1, span)
    for offset in unfinished:
        window._done &= ~(1 << offset)
        window.running.add(offset)
    return len(window.write(OWNER))


def test_the_sizes_that_the_bound_rests_on() -> None:
    chance = random.Random(1)
    assert _size(100_000, set()) < 200
    assert _size(100_000, set(chance.sample(range(1, 100_000), 100))) < 900
    half = Window(0)
    for offset in chance.sample(range(1, 10_000), 5_000):
        half.finish(offset)
    assert 1_600 < len(half.write(OWNER)) < 1_800


def test_few_marks_are_not_deflated_and_many_are() -> None:
    few, many = Window(0), Window(0)
    many.skip(1, 10_000)
    assert (few.write(OWNER)[0], many.write(OWNER)[0]) == ("p", "z")


def test_nothing_more_is_started_when_the_metadata_is_full() -> None:
    chance, window = random.Random(1), Window(0)
    assert window.room == (HARD_LIMIT - 64) // 4
    for offset in chance.sample(range(1, 30_000), 15_000):
        window.finish(offset)
    assert len(window.write(OWNER)) >= FULL
    assert window.room == 0


def test_what_fits_in_the_room_fits_in_the_metadata() -> None:
    """However far apart the offsets are that are started between two commits."""
    chance, window = random.Random(2), Window(0)
    top, sizes = 0, []
    for _ in range(40):
        window.write(OWNER)
        for _ in range(window.room):
            top += chance.randint(1, 400)
            window.start(top)
        sizes.append(len(window.write(OWNER)))
    assert max(sizes) <= HARD_LIMIT
    assert max(sizes) >= FULL, "the bound was reached"


def test_a_window_that_one_job_holds_open_ends_at_the_span() -> None:
    window = Window(0)
    window.skip(1, SPAN)
    window.write(OWNER)
    assert window.size < FULL
    assert window.room == 0
    window.finish(0)
    assert (window.base, window.span, window.room > 0) == (SPAN, 0, True)


def test_many_finish_as_one_after_the_other() -> None:
    offsets = [104, 100, 109, 99, 101]
    together, apart = Window(100), Window(100)
    for window in (together, apart):
        window.start(*range(100, 110))
        window.lost[104] = 2
    together.finish(*offsets)
    for offset in offsets:
        apart.finish(offset)
    assert together.write(b"12345678") == apart.write(b"12345678")
    assert (together.base, together.finished, together.lost) == (102, 2, {})
