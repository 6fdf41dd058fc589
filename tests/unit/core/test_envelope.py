"""The wire form: what is written stays readable, and nothing that is read can raise."""

from __future__ import annotations

import copy
import json
import operator
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nimbusq.envelope import (
    VERSION,
    Callback,
    ChainRest,
    Envelope,
    Overlap,
    Rate,
    Unique,
    Unreadable,
    copy_of,
    decode,
    template_of,
    wires_of_copies,
)
from nimbusq.ids import new_id

GOLDEN = Path(__file__).parent / "golden"

ENVELOPES = {
    "plain": Envelope(id="0198a", name="SendEmail", queue="mail", body=b'{"user_id":12}'),
    "every_option": Envelope(
        id="0198b",
        name="SendEmail",
        queue="mail",
        body=b"{}",
        max_attempts=6,
        priority=1,
        delay=90.5,
        expires_in=3600.0,
        timeout=30.0,
        unique=Unique(key="user:12", mode="lock", ttl=60.0),
        overlap=Overlap(key="user:12", limit=2, release_after=5.0, expire_after=900.0, max_releases=3),
        rate=Rate(key="smtp", per_second=2.5, burst=5),
        batch_id="b1",
        tags=("a", "b"),
        silenced=True,
        trace={"traceparent": "00-1-2-01"},
        meta={"tenant": 7},
    ),
    "chain": Envelope(
        id="0198c",
        name="First",
        queue="default",
        chain=ChainRest(
            id="c1",
            index=1,
            name="etl",
            rest=(Envelope(id="n", name="Second", queue="default", body=b"\xff\x00").to_text(),),
            on_failure='{"v":1,"id":"x","name":"Tell","queue":"default"}\n{}',
        ),
    ),
    "callback": Envelope(
        id="0198d",
        name="Tell",
        queue="default",
        callback=Callback(
            kind="catch", of="b1", job_id="j1", job_name="SendEmail", error="ValueError: \N{SNOWMAN}"
        ),
    ),
    "binary_body": Envelope(id="0198e", name="Packed", queue="default", body=b"\x1f\x8b\n\n\x00\xff"),
}


@pytest.mark.parametrize("name", ENVELOPES)
def test_the_wire_form_does_not_change(name: str) -> None:
    """The files are what earlier versions have stored: add files, never change one."""
    stored = (GOLDEN / f"{name}.wire").read_bytes()
    assert ENVELOPES[name].to_wire() == stored
    assert decode(stored) == ENVELOPES[name]


def test_defaults_are_left_out() -> None:
    header, _, body = ENVELOPES["plain"].to_wire().partition(b"\n")
    assert json.loads(header) == {"v": 1, "id": "0198a", "name": "SendEmail", "queue": "mail"}
    assert body == b'{"user_id":12}'


def test_unknown_fields_are_kept_and_passed_on() -> None:
    raw = b'{"v":1,"id":"x","name":"A","queue":"q","colour":"red","later":{"a":[1]}}\n{}'
    envelope = decode(raw)
    assert isinstance(envelope, Envelope)
    assert envelope.extra == {"colour": "red", "later": {"a": [1]}}
    assert decode(replace(envelope, id="y").to_wire()).extra == envelope.extra  # type: ignore[union-attr]


def test_a_newer_version_is_kept_for_a_newer_worker() -> None:
    raw = f'{{"v":{VERSION + 1},"id":"x","name":"A","queue":"q","max_attempts":9}}\n{{}}'.encode()
    answer = decode(raw)
    assert isinstance(answer, Unreadable)
    assert answer.newer
    assert answer.raw == raw
    assert answer.header is not None
    assert answer.header.max_attempts == 9


def test_a_newer_version_that_cannot_even_be_read_is_kept_too() -> None:
    answer = decode(b'{"v":99,"id":5,"name":[],"queue":null}')
    assert isinstance(answer, Unreadable)
    assert answer.newer
    assert answer.header is None


HEADER: dict[str, Any] = {"v": 1, "id": "x", "name": "A", "queue": "q"}

BROKEN: dict[str, Any] = {
    "no version": {"v": None},
    "version of another type": {"v": "1"},
    "version true": {"v": True},
    "version 0": {"v": 0},
    "no id": {"id": None},
    "empty id": {"id": ""},
    "id of another type": {"id": 5},
    "id with NUL": {"id": "a\0b"},
    "name with a lone surrogate": {"name": "\ud800"},
    "queue with a line feed": {"queue": "a\nb"},
    "tag with NUL": {"tags": ["a\0"]},
    "batch with NUL": {"batch_id": "\0"},
    "unique key with a lone surrogate": {"unique": {"key": "\ud800"}},
    "overlap key with NUL": {"overlap": {"key": "a\0"}},
    "chain name with NUL": {"chain": {"id": "c", "name": "\0"}},
    "name of another type": {"name": ["A"]},
    "queue of another type": {"queue": {}},
    "attempts -1": {"max_attempts": -1},
    "attempts 2**63": {"max_attempts": 2**63},
    "attempts as text": {"max_attempts": "3"},
    "attempts true": {"max_attempts": True},
    "priority 0": {"priority": 0},
    "priority 11": {"priority": 11},
    "delay -5": {"delay": -5},
    "delay 10**12": {"delay": 10**12},
    "delay as text": {"delay": "5"},
    "timeout as list": {"timeout": []},
    "tags that are no list": {"tags": 5},
    "tags that are no texts": {"tags": [1]},
    "tags as one text": {"tags": "abc"},
    "silenced as text": {"silenced": "no"},
    "trace that is no object": {"trace": "x"},
    "trace of numbers": {"trace": {"a": 1}},
    "meta that is no object": {"meta": [1]},
    "batch of another type": {"batch_id": 5},
    "unique that is no object": {"unique": "k"},
    "unique without key": {"unique": {}},
    "unique key of another type": {"unique": {"key": 5}},
    "unique of another mode": {"unique": {"key": "k", "mode": "forever"}},
    "unique ttl as text": {"unique": {"key": "k", "mode": "lock", "ttl": "60"}},
    "overlap without key": {"overlap": {"limit": 1}},
    "overlap limit as text": {"overlap": {"key": "k", "limit": "1"}},
    "overlap limit 0": {"overlap": {"key": "k", "limit": 0}},
    "overlap delay as text": {"overlap": {"key": "k", "release_after": "3"}},
    "overlap delay negative": {"overlap": {"key": "k", "release_after": -3}},
    "overlap releases as text": {"overlap": {"key": "k", "max_releases": "3"}},
    "rate without key": {"rate": {"per_second": 1}},
    "rate 0": {"rate": {"key": "k", "per_second": 0}},
    "rate as text": {"rate": {"key": "k", "per_second": "1"}},
    "rate burst 0": {"rate": {"key": "k", "per_second": 1, "burst": 0}},
    "chain without id": {"chain": {"index": 0}},
    "chain index as text": {"chain": {"id": "c", "index": "0"}},
    "chain rest of numbers": {"chain": {"id": "c", "rest": [1]}},
    "chain rest that is no list": {"chain": {"id": "c", "rest": "abc"}},
    "chain on_failure of another type": {"chain": {"id": "c", "on_failure": 5}},
    "callback of another kind": {"callback": {"kind": "maybe", "of": "b"}},
    "callback without of": {"callback": {"kind": "then"}},
    "callback error of another type": {"callback": {"kind": "then", "of": "b", "error": 5}},
    "part that is a list": {"overlap": [1]},
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_header_that_would_break_further_on_is_not_read(case: str) -> None:
    """B15: a hand-made header must never reach arithmetic in a driver or the end of a job."""
    header = {name: value for name, value in {**HEADER, **BROKEN[case]}.items() if value is not None}
    answer = decode(json.dumps(header).encode() + b"\n{}")
    assert isinstance(answer, Unreadable), answer
    assert not answer.newer


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\n",
        b"not-json",
        b"{}",
        b"[]",
        b"null",
        b"1e400",
        b'"' + b"x" * 1_000_000 + b'"',
        b"[" * 1_000_000 + b"]" * 1_000_000,
        b'{"v":' * 100_000,
        b'{"v":' + b"9" * 5_000 + b"}",
        b"\x80\x04\x95\x00pickle",
        b'{"py/object":"os.system"}',
        b"!!python/object/apply:os.system [ls]",
        b"\xff\xfe\x00",
        b'{"v":1,"id":"x","name":"A","queue":"q","delay":NaN}',
        b'{"v":1,"id":"x","name":"A","queue":"q","meta":{"x":Infinity}}',
        b'{"v":1,"id":"x","name":"A","queue":"q","later":NaN}',
        b'{"v":1,"id":"x","name":"A","queue":"q","delay":1e400}',
        b'{"v":1,"id":"x","id":"y","name":"A","queue":"q"}',
    ],
    ids=lambda raw: repr(raw[:30]),
)
def test_junk_is_unreadable_with_its_bytes(raw: bytes) -> None:
    answer = decode(raw)
    assert isinstance(answer, Unreadable)
    assert answer.raw == raw
    assert len(answer.error) < 500
    answer.error.encode()


@given(st.binary(max_size=300))
def test_no_bytes_raise(raw: bytes) -> None:
    assert isinstance(decode(raw), Envelope | Unreadable)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
fields = st.sampled_from([*Envelope.__dataclass_fields__, "v", "later"])


@given(st.dictionaries(fields, json_values, max_size=6))
def test_no_header_raises_and_what_is_read_can_be_written(changes: dict[str, Any]) -> None:
    """Whatever decode accepts, settle must be able to store again."""
    answer = decode(json.dumps({**HEADER, **changes}).encode() + b"\n{}")
    if isinstance(answer, Envelope):
        assert decode(answer.to_wire()) == answer
        assert answer.unique_digest is None or len(answer.unique_digest) == 64
        assert answer.member_id


texts = st.text(max_size=20)
names = st.text(min_size=1, max_size=20).filter(str.isprintable)


@given(
    st.builds(
        Envelope,
        id=names,
        name=names,
        queue=names,
        body=st.binary(max_size=50),
        max_attempts=st.integers(1, 2**31 - 1),
        priority=st.integers(1, 10),
        delay=st.floats(0, 1e10),
        tags=st.lists(names).map(tuple),
        meta=st.dictionaries(texts, st.none() | st.booleans() | st.integers() | texts),
        unique=st.none() | st.builds(Unique, key=texts.filter(lambda key: key and "\0" not in key)),
    )
)
def test_every_envelope_comes_back_as_it_was(envelope: Envelope) -> None:
    assert decode(envelope.to_wire()) == envelope
    assert Envelope.from_text(envelope.to_text()) == envelope
    nested = Envelope(id="n", name="N", queue="q", chain=ChainRest(id="c", rest=(envelope.to_text(),)))
    back = decode(nested.to_wire())
    assert isinstance(back, Envelope)
    assert back.chain is not None
    assert Envelope.from_text(back.chain.rest[0]) == envelope


def test_name_and_key_cannot_be_confused() -> None:
    """B44: (name "a:b", key "c") and (name "a", key "b:c") are two keys."""

    def digest(name: str, key: str) -> str | None:
        return Envelope(id="x", name=name, queue="q", unique=Unique(key=key)).unique_digest

    pairs = [("a:b", "c"), ("a", "b:c"), ("a", ":b:c"), ("1:a", "b"), ("1", ":ab"), ("K", "k"), ("k", "K")]
    composed, decomposed = ("k", "\u00e9"), ("k", "e\u0301")
    digests = {digest(*pair) for pair in [*pairs, composed, decomposed]}
    assert len(digests) == len(pairs) + 2


# --- envelopes of one kind are read by a copy ------------------------------------------------------------------

PLAIN = '{"v":1,"id":"%s","name":"J","queue":"q"%s}'


def test_envelopes_of_one_kind_share_nothing_that_could_be_changed() -> None:
    first, second = (decode((PLAIN % (job_id, "") + "\n{}").encode()) for job_id in ("a", "b"))
    assert isinstance(first, Envelope)
    assert isinstance(second, Envelope)
    assert (first.id, second.id) == ("a", "b")
    for name in ("trace", "meta", "extra"):
        mapping = getattr(first, name)
        for change in (
            lambda it: it.__setitem__("x", "y"),
            lambda it: it.setdefault("x", "y"),
            lambda it: it.update(x="y"),
            lambda it: operator.ior(it, {"x": "y"}),
        ):
            with pytest.raises(TypeError, match="never changes"):
                change(mapping)
        assert getattr(second, name) == {}
    assert decode((PLAIN % ("c", "") + "\n{}").encode()) == Envelope(id="c", name="J", queue="q")


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_an_envelope_can_be_copied(copied: Callable[[Envelope], Envelope]) -> None:
    envelope = Envelope(id="a", name="J", queue="q")
    assert copied(envelope) == envelope
    assert copied(envelope).to_wire() == envelope.to_wire()


def test_an_envelope_can_be_written_down() -> None:
    fields = asdict(Envelope(id="a", name="J", queue="q"))
    assert (json.dumps(fields["meta"]), fields["trace"], fields["extra"]) == ("{}", {}, {})


def test_copies_of_one_template_are_written_together() -> None:
    template = template_of(name='Jö"%s', queue="q", max_attempts=2, tags=("t",), unique=Unique(key="k"))
    ids = ["a", "é\n", '"', "\\n", "", "\udc80", new_id()]
    copies = [copy_of(template, one, b'{"n":%d}\n\xff' % n) for n, one in enumerate(ids)]
    assert wires_of_copies(copies) == [replace(one).to_wire() for one in copies]


def test_others_are_not_taken_for_copies() -> None:
    options: dict[str, Any] = {"name": "J", "queue": "q"}
    one, other = (copy_of(template_of(**options), "a", b"{}") for _ in range(2))
    assert wires_of_copies([one, replace(one, priority=1)]) is None
    assert wires_of_copies([Envelope(id="a", **options), one]) is None
    assert wires_of_copies([one, other, copy_of(template_of(name="K", queue="q"), "b", b"{}")]) is None


@pytest.mark.parametrize(
    ("job_id", "more", "expected"),
    [
        ("\\u0041", "", "A"),
        ("é", "", "é"),
        ("a", ',"id":"b"', None),
        ("", "", None),
        ("\x7f", "", None),
        ("a", ',"priority":11', None),
        ("a", ',"nobody_knows":1', "a"),
    ],
)
def test_headers_that_need_more_than_a_copy(job_id: str, more: str, expected: str | None) -> None:
    for _ in range(2):  # the second one might be a copy of the first
        read = decode((PLAIN % (job_id, more) + "\n{}").encode())
        assert (read.id if isinstance(read, Envelope) else None) == expected


def test_a_trace_is_kept_however_it_is_spelled() -> None:
    for _ in range(2):
        read = decode((PLAIN % ("a", ',"trace" : {"traceparent":"00-1"}') + "\n{}").encode())
        assert isinstance(read, Envelope)
        assert read.trace == {"traceparent": "00-1"}


def test_parts_that_two_of_a_kind_share_are_read_in_full() -> None:
    envelope = ENVELOPES["every_option"]
    kind = replace(envelope, trace={}, meta={}, extra={})
    for _ in range(2):
        assert decode(kind.to_wire()) == kind
        assert decode(envelope.to_wire()) == envelope
