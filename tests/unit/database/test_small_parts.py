"""Parts of the driver that need no database."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest

from nimbusq.errors import InvalidOption, StoreUnavailable
from nimbusq_database import paging
from nimbusq_database.attempts import Attempt, repeat
from nimbusq_database.bell import Bell
from nimbusq_database.failures import OutcomeUnknown
from nimbusq_database.mysql.client import bound, split_values
from nimbusq_database.mysql.doctor import too_old
from nimbusq_database.mysql.failures import translated
from nimbusq_database.postgres.notifier import Notifier, payloads
from nimbusq_database.statements import Part
from nimbusq_database.texts import storable


def test_storable_writes_out_what_databases_refuse() -> None:
    assert storable("plain") == "plain"
    assert storable("é€") == "é€"
    assert storable("a\0b\ud800") == "a\\0b\\ud800"


def test_an_insert_is_split_at_its_values() -> None:
    head, values, tail = split_values("insert into t (a, b) values (:a, f(:b)) on duplicate key update a = a")
    assert (head, values) == ("insert into t (a, b) values ", "(:a, f(:b))")
    assert tail == " on duplicate key update a = a"


def test_a_list_becomes_a_placeholder_for_each_value() -> None:
    part = Part("select %(n)s where id in %(ids)s and x in (%(rows)s)", ("n", "ids", "rows"))
    text, values = bound(part, {"n": 1, "ids": ["a", "b"], "rows": [[1]]})
    assert text == "select %(n)s where id in (%(ids_0)s, %(ids_1)s) and x in (%(rows)s)"
    assert values == {"n": 1, "ids_0": "a", "ids_1": "b", "rows": "[[1]]"}


@pytest.mark.parametrize(
    ("version", "refused"),
    [
        ("10.5.9-MariaDB", True),
        ("10.6.0-MariaDB-log", False),
        ("5.7.44", True),
        ("8.0.36", False),
        ("11.4.2-MariaDB", False),
    ],
)
def test_servers_that_cannot_skip_locked_rows_are_refused(version: str, refused: bool) -> None:
    assert (too_old(version) is not None) == refused


def test_notifications_stay_below_the_servers_limit() -> None:
    queues = [f"{'q' * 60}{n}" for n in range(500)]
    texts = payloads(queues)
    assert [name for text in texts for name in json.loads(text)] == queues
    assert max(map(len, texts)) < 8_000
    assert payloads([]) == []


async def test_many_commits_are_told_at_once() -> None:
    sent: list[str] = []
    told = asyncio.Event()

    async def send(payload: str) -> None:
        sent.append(payload)
        told.set()

    notifier = Notifier(send)
    notifier.open()
    for n in range(100):
        notifier.tell({"a", f"job:{n}"})
    await told.wait()
    notifier.tell({"b"})
    await notifier.aclose()
    assert sent == ['["a"]', '["b"]']


async def test_a_push_after_a_pause_carries_its_notification() -> None:
    sent: list[str] = []

    async def send(payload: str) -> None:
        sent.append(payload)

    notifier = Notifier(send)
    notifier.open()
    assert notifier.carried("a") == '["a"]'
    assert notifier.carried("a") is None, "it follows at once: the task tells of it, with others"
    notifier.tell({"a"})
    notifier.tell({"b"})
    await notifier.aclose()
    assert sent == ['["a", "b"]']


async def test_a_notification_that_fails_stops_nothing() -> None:
    calls = asyncio.Queue[str]()

    async def send(payload: str) -> None:
        calls.put_nowait(payload)
        raise StoreUnavailable("gone")

    notifier = Notifier(send)
    notifier.open()
    for _ in range(2):
        notifier.tell({"a"})
        assert await calls.get() == '["a"]'
    await notifier.aclose()


async def test_the_bell_wakes_who_waits_for_a_topic() -> None:
    bell = Bell()
    with bell.listening(["a"]) as first, bell.listening(["b"]) as second:
        bell.ring({"a", "c"})
        await asyncio.sleep(0)
        assert (first.is_set(), second.is_set()) == (True, False)
        bell.ring()
        await asyncio.sleep(0)
        assert second.is_set()
    bell.ring({"a"})  # nobody is left


async def test_the_bell_is_heard_in_another_threads_loop() -> None:
    bell, ready, heard = Bell(), threading.Event(), threading.Event()

    async def wait() -> None:
        with bell.listening(["a"]) as rung:
            ready.set()
            await rung.wait()
            heard.set()

    thread = threading.Thread(target=lambda: asyncio.run(wait()))
    thread.start()
    await asyncio.to_thread(ready.wait, 5)
    bell.ring({"a"})
    assert await asyncio.to_thread(heard.wait, 5)
    thread.join()
    bell.ring({"a"})


def test_a_cursor_that_is_none_is_refused() -> None:
    assert paging.number("", 7) == 7
    assert paging.number("12", 7) == 12
    with pytest.raises(InvalidOption, match="cursor"):
        paging.number("1; drop", 7)


class Deadlock(Exception):
    pass


def undone(error: Exception) -> bool:
    return isinstance(error, Deadlock)


async def test_what_the_server_has_undone_is_run_again() -> None:
    runs: list[Attempt] = []

    async def once(attempt: Attempt) -> str:
        assert not attempt.commit
        attempt.commit = True
        runs.append(attempt)
        if len(runs) < 3:
            raise Deadlock
        return "done"

    answer = await repeat(once, limit=5, translated=lambda: translated("db"), undone=undone)
    assert (answer, len(runs)) == ("done", 3)


@pytest.mark.parametrize(("commit", "error"), [(True, OutcomeUnknown), (False, StoreUnavailable)])
async def test_a_connection_lost_at_the_commit_leaves_the_outcome_open(
    commit: bool, error: type[Exception]
) -> None:
    async def once(attempt: Attempt) -> None:
        attempt.commit = commit
        raise ConnectionResetError

    with pytest.raises(StoreUnavailable) as raised:
        await repeat(once, limit=5, translated=lambda: translated("db"), undone=undone)
    assert type(raised.value) is error
