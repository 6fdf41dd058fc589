"""What a handler does, and what becomes of its job."""

from __future__ import annotations

import asyncio

import pytest

from nimbusq import Fail, Job, JobCancelled, JobFailed, Release, ResultExpired, current_job, dispatch, job
from nimbusq.envelope import VERSION
from nimbusq.retry import Backoff
from nimbusq.worker.decide import PATIENCE_FOR_UNKNOWN
from tests.unit.worker.bench import Bench, Diary, until


async def run_to_its_end(bench: Bench, job_id: str, *, runs: int = 1) -> None:
    """Run what is due, and let time pass between the runs."""
    for _ in range(runs):
        await bench.worker().run_once()
        await bench.advance(700)


async def test_a_returned_value_is_the_result(bench: Bench) -> None:
    @job
    async def add(a: int, b: int) -> int:
        return a + b

    receipt = await dispatch(add, 2, b=3).send()
    assert await bench.worker().run_once() == 1
    assert await receipt.result(timeout=1) == 5
    assert await bench.depth() == (0, 0, 0)


async def test_a_failed_run_is_repeated_until_its_retries_are_used_up(bench: Bench) -> None:
    """RT2, RT5: retries + 1 runs, and only the last one counts as processed."""
    bench.manager.observers.add(diary := Diary())
    attempts: list[int] = []

    class Broken(Job, retries=2):
        async def handle(self) -> None:
            attempts.append(current_job().attempt)
            raise ValueError(f"run {current_job().attempt}")

    receipt = await dispatch(Broken()).delay(3600).send()
    await bench.advance(3600)
    await bench.worker().run_once()
    assert (await bench.depth())[1] == 1
    await bench.advance(2.0)  # RT7: the first back-off is at most 2 s, whatever the dispatch's delay was
    await bench.worker().run_once()
    await bench.advance(4.0)
    await bench.worker().run_once()
    assert attempts == [1, 2, 3]
    assert diary.heard == [
        ("retried", "ValueError: run 1"),
        ("retried", "ValueError: run 2"),
        ("processed", "ValueError: run 3"),
    ]
    with pytest.raises(JobFailed, match="ValueError: run 3"):
        await receipt.result(timeout=1)
    record = await bench.manager.require("failed", "failed jobs").get(receipt.id)
    assert (record.kind, record.attempts, record.max_attempts) == ("ValueError", 3, 3)
    assert "raise ValueError" in record.traceback


@pytest.mark.parametrize(("retries", "runs"), [(0, 1), (1, 2), (3, 4)])
async def test_at_most_retries_and_one_runs(bench: Bench, retries: int, runs: int) -> None:
    starts: list[int] = []

    class Broken(Job):
        async def handle(self) -> None:
            starts.append(1)
            raise OSError

    receipt = await dispatch(Broken()).retries(retries).send()
    await run_to_its_end(bench, receipt.id, runs=runs + 2)
    assert len(starts) == runs
    assert (await bench.view(receipt.id)).error == "OSError"


async def test_releases_cost_no_attempt_and_do_not_grow_the_back_off(bench: Bench) -> None:
    """B36, JD18: fifty releases, one failure, one success."""
    history: list[tuple[int, int]] = []

    class Patient(Job, retries=3, backoff=Backoff(jitter=0.0)):
        async def handle(self) -> str:
            me = current_job()
            history.append((me.attempt, me.releases))
            if me.releases < 50:
                raise Release(0.1)
            if me.attempt == 1:
                raise ValueError("once")
            return "done"

    receipt = await dispatch(Patient()).send()
    for _ in range(50):
        await bench.worker().run_once()
        await bench.advance(0.1)
    assert history == [(1, n) for n in range(50)]
    await bench.worker().run_once()
    view = await bench.view(receipt.id)
    assert (view.state, view.attempt, view.releases) == ("delayed", 1, 50)
    await bench.advance(1.9)
    assert await bench.worker().run_once() == 0, "the first step of the back-off is 2 s"
    await bench.advance(0.1)
    await bench.worker().run_once()
    assert history[-1] == (2, 50)
    assert await receipt.result(timeout=1) == "done"


async def test_a_release_with_no_retries_goes_on(bench: Bench) -> None:
    class Patient(Job, retries=0):
        async def handle(self) -> str:
            if current_job().releases < 5:
                raise Release
            return "done"

    receipt = await dispatch(Patient()).send()
    async with bench.working():
        assert await receipt.result(timeout=5) == "done"


async def test_except_exception_swallows_neither_release_nor_fail(bench: Bench) -> None:
    class Careless(Job):
        how: str

        async def handle(self) -> None:
            try:
                end(self.how)
            except Exception:  # noqa: BLE001  # that is the handler that must not get away with it
                return

    def end(how: str) -> None:
        raise Release(5) if how == "release" else Fail("enough")

    released = await dispatch(Careless(how="release")).send()
    failed = await dispatch(Careless(how="fail")).send()
    await bench.worker().run_once()
    assert (await bench.view(released.id)).state == "delayed"
    with pytest.raises(JobFailed, match="enough"):
        await failed.result(timeout=1)


@pytest.mark.parametrize("wrapped", ["group", "cause", "task group"])
async def test_release_is_found_inside_what_wraps_it(bench: Bench, wrapped: str) -> None:
    class Deep(Job):
        async def handle(self) -> None:
            if wrapped == "group":
                raise BaseExceptionGroup("two", [ValueError(), Release(5)])
            if wrapped == "cause":
                raise RuntimeError("wrapped") from Release(5)

            async def child() -> None:
                raise Release(5)

            async with asyncio.TaskGroup() as group:
                group.create_task(child())

    receipt = await dispatch(Deep()).send()
    await bench.worker().run_once()
    view = await bench.view(receipt.id)
    assert (view.state, view.attempt, view.releases) == ("delayed", 0, 1)


async def test_fail_ends_the_job_whatever_retries_it_has_left(bench: Bench) -> None:
    class Hopeless(Job, retries=10):
        async def handle(self) -> None:
            raise Fail(KeyError("no such user"))

    receipt = await dispatch(Hopeless()).send()
    await bench.worker().run_once()
    record = await bench.manager.require("failed", "failed jobs").get(receipt.id)
    assert (record.kind, record.error) == ("KeyError", "'no such user'")


async def test_errors_of_dont_retry_end_the_job_at_once(bench: Bench) -> None:
    class Picky(Job, dont_retry=(LookupError,)):
        async def handle(self) -> None:
            raise KeyError("subclass")

    receipt = await dispatch(Picky()).send()
    await bench.worker().run_once()
    assert (await bench.view(receipt.id)).state == "failed"


@pytest.mark.parametrize("error", [SystemExit(3), GeneratorExit(), BaseException("odd")])
async def test_no_exception_of_a_handler_ends_the_worker(bench: Bench, error: BaseException) -> None:
    class Odd(Job, retries=0):
        async def handle(self) -> None:
            raise error

    receipt = await dispatch(Odd()).send()
    await bench.worker().run_once()
    with pytest.raises(JobFailed, match=type(error).__name__):
        await receipt.result(timeout=1)


async def test_a_cancellation_of_the_handlers_own_making_is_a_failure(bench: Bench) -> None:
    class Confused(Job, retries=0):
        async def handle(self) -> None:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)

    receipt = await dispatch(Confused()).send()
    await bench.worker().run_once()
    with pytest.raises(JobFailed, match="CancelledError"):
        await receipt.result(timeout=1)


async def test_a_backoff_that_raises_gives_way_to_the_default(bench: Bench) -> None:
    def broken(attempt: int) -> float:
        raise ZeroDivisionError

    class Broken(Job, backoff=broken):
        async def handle(self) -> None:
            raise ValueError

    receipt = await dispatch(Broken()).send()
    await bench.worker().run_once()
    assert (await bench.view(receipt.id)).state == "delayed"


async def test_an_unknown_job_is_put_back_for_a_worker_that_knows_it(bench: Bench) -> None:
    """B15: without an attempt, with growing delays; then it is parked with its bytes."""
    job_id = await bench.push("Elsewhere", body=b'{"a":1}')
    waits = 0.0
    for n in range(PATIENCE_FOR_UNKNOWN):
        assert await bench.worker().run_once() == 1
        view = await bench.view(job_id)
        assert (view.state, view.attempt, view.releases) == ("delayed", 0, n + 1)
        step = min(60.0, 5.0 * 2**n)
        await bench.advance(step)
        waits += step
    assert 500 < waits < 1000, "about ten minutes"
    await bench.worker().run_once()
    record = await bench.manager.require("failed", "failed jobs").get(job_id)
    assert record.kind == "UnknownJob"
    assert record.wire.endswith(b'{"a":1}')
    assert "Elsewhere" in record.error


async def test_unreadable_bytes_are_parked_as_they_are(bench: Bench) -> None:
    bad = [b"not-json", b"{}", b'"' + b"x" * 1_000_000 + b'"', b"[" * 1_000_000, b"\x80\x04pickle", b""]
    pushed = [await bench.store.push_raw("default", raw) for raw in bad]
    done: list[int] = []

    class Good(Job):
        n: int

        async def handle(self) -> None:
            done.append(self.n)

    for n in range(10):
        await dispatch(Good(n=n)).send()
    async with bench.working():
        await until(lambda: len(done) == 10)
    for raw, answer in zip(bad, pushed, strict=True):
        record = await bench.manager.require("failed", "failed jobs").get(answer.id)
        assert record.wire == raw
        assert record.kind == "UnreadableJob"
        assert (await bench.events(answer.id)).count("claim") == 1


async def test_bytes_of_a_newer_version_wait_for_a_newer_worker(bench: Bench) -> None:
    raw = f'{{"v":{VERSION + 998},"id":"j1","name":"New","queue":"default"}}\n{{}}'.encode()
    job_id = (await bench.store.push_raw("default", raw, job_id="j1")).id
    for n in range(PATIENCE_FOR_UNKNOWN):
        await bench.worker().run_once()
        assert (await bench.view(job_id)).attempt == 0
        assert (await bench.view(job_id)).releases == n + 1
        await bench.advance(60)
    await bench.worker().run_once()
    record = await bench.manager.require("failed", "failed jobs").get(job_id)
    assert (record.kind, record.wire) == ("UnsupportedVersion", raw)


async def test_arguments_that_do_not_fit_the_class_any_more_are_parked(bench: Bench) -> None:
    class Changed(Job):
        count: int

        async def handle(self) -> None: ...

    job_id = await bench.push("Changed", body=b'{"count":"many"}')
    await bench.worker().run_once()
    record = await bench.manager.require("failed", "failed jobs").get(job_id)
    assert record.kind == "UnreadableJob"
    assert record.wire.endswith(b'{"count":"many"}')


async def test_fields_that_only_a_newer_sender_knows_are_passed_over(bench: Bench) -> None:
    class Older(Job):
        n: int

        async def handle(self) -> int:
            return self.n

    job_id = await bench.push("Older", body=b'{"n":1,"added_later":true}')
    await bench.worker().run_once()
    assert (await bench.view(job_id)).state == "done"


async def test_a_job_that_expired_before_it_could_start_is_cancelled(bench: Bench) -> None:
    class Late(Job, expires=10):
        async def handle(self) -> None:
            raise AssertionError("it must not run")

    bench.manager.observers.add(diary := Diary())
    receipt = await dispatch(Late()).send()
    await bench.advance(10)
    await bench.worker().run_once()
    with pytest.raises(JobCancelled, match="expired"):
        await receipt.result(timeout=1)
    assert diary.heard == [("cancelled", "expired before it could start")]


async def test_a_result_that_cannot_be_kept_is_said_to_be_missing(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    @job
    async def opaque() -> object:
        return object()

    @job
    async def huge() -> str:
        return "x" * 70_000

    receipts = [await dispatch(opaque).send(), await dispatch(huge).send()]
    await bench.worker().run_once()
    with pytest.raises(ResultExpired, match="cannot be encoded"):
        await receipts[0].result(timeout=1)
    with pytest.raises(ResultExpired, match="has 70,002 bytes, at most 65,536 are kept"):
        await receipts[1].result(timeout=1)
    assert "70,002 bytes" in caplog.text


async def test_an_expired_result_is_not_taken_for_none(bench: Bench) -> None:
    @job
    async def answer() -> int:
        return 42

    @job
    async def nothing() -> None: ...

    kept, none = await dispatch(answer).send(), await dispatch(nothing).send()
    await bench.worker().run_once()
    assert (await kept.result(timeout=1), await none.result(timeout=1)) == (42, None)
    await bench.advance(3601)
    assert await none.result(timeout=1) is None
    with pytest.raises(ResultExpired, match="expired"):
        await kept.result(timeout=1)
