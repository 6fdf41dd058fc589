"""The audit checker: allowed histories pass, and every seeded violation is caught under its name."""

from __future__ import annotations

import json

import pytest

from nimbusq.ids import derived_id
from nimbusq.testing.audit import AuditEvent, check

Event = tuple[str, str, str, int, dict[str, object]]


def push(job: str, **extra: object) -> Event:
    return ("push", job, "", 0, {"at": 0.0, "run_at": 0.0, "max_attempts": 2, **extra})


def claim(job: str, token: str, attempt: int = 1, **extra: object) -> Event:
    return ("claim", job, token, attempt, {"at": 1.0, **extra})


def event(name: str, job: str, token: str, **extra: object) -> Event:
    return (name, job, token, 1, {"at": 2.0, **extra})


def done(job: str, token: str, **extra: object) -> Event:
    return event("done", job, token, **extra)


def link(chain: str, index: int) -> Event:
    job = "first" if index == 0 else derived_id(chain, index)
    return push(job, chain=chain, index=index)


def member(job: str) -> Event:
    return push(job, batch="b", member=job)


def recorded(job: str, token: str, end: str = "done", *, counted: bool = True) -> Event:
    return event(end, job, token, batch="b", member=job, counted=counted)


def callback(job: str, kind: str) -> Event:
    return push(job, callback=kind, of="b")


ALLOWED: dict[str, list[Event]] = {
    "a job that is done": [push("j"), claim("j", "t"), event("extend", "j", "t"), done("j", "t")],
    "a lost run": [push("j"), claim("j", "t"), event("lost", "j", "t"), claim("j", "u", 2), done("j", "u")],
    "a lost last run": [
        push("j", max_attempts=1),
        claim("j", "t"),
        event("lost", "j", "t"),
        event("ending", "j", "u"),
        event("failed", "j", "u"),
    ],
    "a retry": [push("j"), claim("j", "t"), event("retry", "j", "t"), claim("j", "u", 2), done("j", "u")],
    "releases beyond the attempts": [
        push("j", max_attempts=1),
        claim("j", "t"),
        event("release", "j", "t"),
        claim("j", "u"),
        event("release", "j", "u"),
        claim("j", "v"),
        done("j", "v"),
    ],
    "a job put back by its overlap key": [
        push("j"),
        event("release", "j", ""),
        claim("j", "t"),
        done("j", "t"),
    ],
    "a failed job that is retried": [
        push("j"),
        claim("j", "t"),
        event("failed", "j", "t"),
        push("j"),
        claim("j", "u"),
        done("j", "u"),
    ],
    "a cancelled delayed job": [
        push("j", run_at=99.0),
        event("ending", "j", "t"),
        event("cancelled", "j", "t"),
    ],
    "a unique key used twice": [
        push("j", unique="k"),
        claim("j", "t"),
        done("j", "t"),
        push("i", unique="k"),
    ],
    "a chain": [link("c", 0), claim("first", "t"), done("first", "t"), link("c", 1)],
    "a chain whose events of one step come in another order": [
        link("c", 0),
        claim("first", "t"),
        link("c", 1),
        done("first", "t"),
    ],
    "a batch": [
        member("m"),
        member("n"),
        claim("m", "t"),
        claim("n", "u"),
        recorded("m", "t"),
        recorded("n", "u"),
        callback("x", "then"),
        callback("y", "finally"),
    ],
    "a batch with a failed member": [
        member("m"),
        claim("m", "t"),
        recorded("m", "t", "failed"),
        callback("y", "finally"),
        member("m"),
        claim("m", "u"),
        recorded("m", "u", counted=False),
    ],
    "an empty batch": [callback("x", "then"), callback("y", "finally")],
}

VIOLATIONS: dict[str, tuple[str, list[Event]]] = {
    "a claim of a job that was never pushed": ("S1", [claim("j", "t")]),
    "push not idempotent": ("S2", [push("j"), push("j")]),
    "settle not fenced, after the end": (
        "S2",
        [
            push("j"),
            claim("j", "t"),
            event("lost", "j", "t"),
            claim("j", "u", 2),
            done("j", "u"),
            done("j", "t"),
        ],
    ),
    "a job done twice by its holder": ("S2", [push("j"), claim("j", "t"), done("j", "t"), done("j", "t")]),
    "a claim after the end": ("S3", [push("j"), claim("j", "t"), done("j", "t"), claim("j", "u", 2)]),
    "a done job pushed again": ("S3", [push("j"), claim("j", "t"), done("j", "t"), push("j")]),
    "promotion not atomic: two holders": ("S4", [push("j"), claim("j", "t"), claim("j", "u", 2)]),
    "expiry keeps the token": (
        "S4",
        [push("j"), claim("j", "t"), event("lost", "j", "other"), claim("j", "u", 2)],
    ),
    "a lease taken back before its end": (
        "S4",
        [push("j"), claim("j", "t", lease_until=30.0), event("lost", "j", "t", at=20.0)],
    ),
    "a renewed lease taken back before its end": (
        "S4",
        [
            push("j"),
            claim("j", "t", lease_until=30.0),
            event("extend", "j", "t", lease_until=60.0),
            event("lost", "j", "t", at=40.0),
        ],
    ),
    "an ending handed out while the job runs": (
        "S4",
        [push("j"), claim("j", "t"), event("ending", "j", "u")],
    ),
    "extend steals back": (
        "S5",
        [push("j"), claim("j", "t"), event("lost", "j", "t"), claim("j", "u", 2), event("extend", "j", "t")],
    ),
    "settle not fenced": (
        "S5",
        [push("j"), claim("j", "t"), event("lost", "j", "t"), claim("j", "u", 2), done("j", "t")],
    ),
    "a retry of a lost run": (
        "S5",
        [push("j"), claim("j", "t"), event("lost", "j", "t"), event("retry", "j", "t")],
    ),
    "a running job put back by nobody": ("S5", [push("j"), claim("j", "t"), event("release", "j", "")]),
    "attempts not bounded": (
        "S6",
        [
            push("j", max_attempts=1),
            claim("j", "t"),
            event("lost", "j", "t"),
            claim("j", "u", 1),
        ],
    ),
    "an attempt above the limit": (
        "S6",
        [push("j", max_attempts=2), event("release", "j", ""), claim("j", "t", 3)],
    ),
    "unique key dropped at claim": (
        "S7",
        [push("j", unique="k"), claim("j", "t"), push("i", unique="k")],
    ),
    "unique key dropped by a retry": (
        "S7",
        [push("j", unique="k"), claim("j", "t"), event("retry", "j", "t"), push("i", unique="k")],
    ),
    "a member counted twice": (
        "S8",
        [
            member("m"),
            claim("m", "t"),
            recorded("m", "t", "failed"),
            member("m"),
            claim("m", "u"),
            recorded("m", "u"),
        ],
    ),
    "a member not counted": ("S8", [member("m"), claim("m", "t"), recorded("m", "t", counted=False)]),
    "a callback pushed twice": ("S8", [callback("x", "finally"), callback("y", "finally")]),
    "a batch that ends too early": ("S8", [member("m"), callback("y", "finally")]),
    "a batch that ends while a member runs": (
        "S8",
        [member("m"), claim("m", "t"), callback("y", "finally"), event("retry", "m", "t")],
    ),
    "a batch that ends while a member runs for ever": (
        "S8",
        [member("m"), claim("m", "t"), callback("y", "finally")],
    ),
    "a batch not sealed: a member after its end": (
        "S8",
        [member("m"), claim("m", "t"), recorded("m", "t"), callback("y", "finally"), member("n")],
    ),
    "then although a member failed": (
        "S8",
        [member("m"), claim("m", "t"), recorded("m", "t", "failed"), callback("x", "then")],
    ),
    "a link pushed before the last one was done": (
        "S9",
        [link("c", 0), claim("first", "t"), link("c", 1), event("retry", "first", "t")],
    ),
    "a link after a failed one": (
        "S9",
        [link("c", 0), claim("first", "t"), event("failed", "first", "t"), link("c", 1)],
    ),
    "chain id random": (
        "S9",
        [link("c", 0), claim("first", "t"), done("first", "t"), push("random", chain="c", index=1)],
    ),
    "a link skipped": ("S9", [link("c", 0), claim("first", "t"), done("first", "t"), link("c", 2)]),
    "claimed before it is due": ("S10", [push("j", run_at=5.0), claim("j", "t", at=4.0)]),
    "claimed before its retry is due": (
        "S10",
        [push("j"), claim("j", "t"), event("retry", "j", "t", run_at=9.0), claim("j", "u", 2, at=8.0)],
    ),
    "a fence that stands still": (
        "fence",
        [push("j"), claim("j", "t", fence=1), event("retry", "j", "t"), claim("j", "u", 2, fence=1)],
    ),
    "an event that nobody knows": ("audit", [push("j"), event("vanished", "j", "t")]),
}


@pytest.mark.parametrize("events", ALLOWED.values(), ids=ALLOWED)
def test_an_allowed_history_has_no_violation(events: list[Event]) -> None:
    assert check(events) == []


@pytest.mark.parametrize(("rule", "events"), VIOLATIONS.values(), ids=VIOLATIONS)
def test_a_violation_is_named(rule: str, events: list[Event]) -> None:
    found = check(events)
    assert found
    assert {violation.partition(":")[0] for violation in found} == {rule}


def test_a_violation_names_the_job_and_what_it_did() -> None:
    assert check([push("j"), push("j")]) == ["S2: j was pushed twice"]


def test_events_are_read_as_stores_keep_them() -> None:
    """SQL and Redis keep `extra` as JSON text, and have no empty tokens."""
    rows = [
        ("push", "j", None, None, json.dumps({"max_attempts": 1})),
        ("claim", "j", "t", 1, b'{"fence": 1}'),
        ("done", "j", "t", 1, ""),
        ("claim", "j", "u", 2, None),
    ]
    assert [violation[:2] for violation in check(rows)] == ["S3", "S6"]
    assert AuditEvent.of(rows[0]) == AuditEvent("push", "j", "", 0, {"max_attempts": 1})


def test_what_a_driver_does_not_tell_is_not_checked() -> None:
    bare = [("push", "j", "", 0, None), ("claim", "j", "t", 9, None), ("done", "j", "t", 9, None)]
    assert check(bare) == []
