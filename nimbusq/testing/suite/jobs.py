"""Looking at jobs: one by its id, or all that live, in pages."""

from __future__ import annotations

import pytest

from nimbusq.driver import Jobs, PutBack
from nimbusq.testing.suite.hands import Hands, history_row, ids, new_id
from nimbusq.testing.suite.needs import needs


def store_of(hands: Hands) -> Jobs:
    jobs = hands.adapter.stores.jobs
    assert jobs is not None
    return jobs


class JobsSuite:
    @needs("jobs")
    async def test_a_ready_job_as_it_is_shown(self, hands: Hands) -> None:
        sent = await hands.push()
        view = await store_of(hands).get(sent.id)
        assert view
        assert (view.id, view.queue, view.name, view.state) == (sent.id, "probe", "Probe", "ready")
        assert (view.attempt, view.releases, view.reclaims, view.error) == (0, 0, 0, "")
        assert (view.lease_until, view.envelope) == (None, sent)

    @needs("jobs")
    async def test_a_delayed_job_shows_when_it_is_due(self, hands: Hands) -> None:
        soon, late = await hands.push(), await hands.push(delay=2 * hands.tick)
        first, second = await store_of(hands).get(soon.id), await store_of(hands).get(late.id)
        assert first
        assert second
        assert second.state == "delayed"
        assert second.run_at - first.run_at == pytest.approx(2 * hands.tick, abs=hands.tick / 2)
        await hands.pass_ticks(2.1)
        second = await store_of(hands).get(late.id)
        assert second
        assert second.state == "ready"

    @needs("jobs")
    async def test_a_running_job_shows_its_lease(self, hands: Hands) -> None:
        await hands.push()
        claim = await hands.take()
        view = await store_of(hands).get(claim.id)
        assert view
        assert view.lease_until
        assert (view.state, view.attempt) == ("leased", 1)
        assert view.lease_until - claim.run_at == pytest.approx(3 * hands.tick, abs=hands.tick / 2)
        await hands.extend(claim, ticks=0.5)
        again = await store_of(hands).get(claim.id)
        assert again
        assert again.lease_until == view.lease_until, "extending never shortens"
        await hands.extend(claim, ticks=6)
        again = await store_of(hands).get(claim.id)
        assert again
        assert again.lease_until
        assert again.lease_until - claim.run_at == pytest.approx(6 * hands.tick, abs=hands.tick / 2)

    @needs("jobs", "timed leases")
    async def test_lost_runs_and_releases_are_counted(self, hands: Hands) -> None:
        sent = await hands.push()
        await hands.take()
        await hands.pass_ticks(3.1)
        await hands.finish(await hands.take(), PutBack(0))
        view = await store_of(hands).get(sent.id)
        assert view
        assert (view.state, view.attempt, view.releases, view.reclaims) == ("ready", 1, 1, 1)

    @needs("jobs", "failed", "history")
    async def test_jobs_that_ended_are_still_found(self, hands: Hands) -> None:
        done, failed = await hands.push_many(2)
        for claim in await hands.claim():
            if claim.id == done.id:
                await hands.finish(claim, history=history_row(claim, "done"))
            else:
                await hands.fail(claim, "boom: 42")
        done_view, failed_view = await store_of(hands).get(done.id), await store_of(hands).get(failed.id)
        assert done_view
        assert failed_view
        assert (done_view.state, done_view.name, done_view.attempt) == ("done", "Probe", 1)
        assert (failed_view.state, failed_view.error) == ("failed", "boom: 42")

    @needs("jobs")
    async def test_an_unknown_job_is_none(self, hands: Hands) -> None:
        assert await store_of(hands).get(new_id()) is None

    @needs("jobs")
    async def test_live_jobs_are_listed_in_pages(self, hands: Hands) -> None:
        sent = await hands.push_many(5) + await hands.push_many(2, queue="b")
        seen: list[str] = []
        cursor, pages = "", 0
        while cursor or not pages:
            page, cursor = await store_of(hands).list(cursor=cursor, limit=3)
            seen += [view.id for view in page]
            pages += 1
        assert (sorted(seen), pages) == (sorted(ids(sent)), 3)

    @needs("jobs")
    async def test_a_list_can_be_of_one_queue_or_state(self, hands: Hands) -> None:
        ready = await hands.push()
        delayed = await hands.push(delay=hands.tick)
        elsewhere = await hands.push(queue="b")
        running = await hands.push(priority=5)
        claims = await hands.claim()
        assert {claim.id for claim in claims} == {ready.id, running.id}
        await hands.finish(next(claim for claim in claims if claim.id == ready.id), PutBack(0))

        async def listed(**fields: object) -> set[str]:
            page, _ = await store_of(hands).list(**fields)  # type: ignore[arg-type]  # a test's own keywords
            return {view.id for view in page}

        assert await listed(queue="b") == {elsewhere.id}
        assert await listed(queue="probe", state="ready") == {ready.id}
        assert await listed(state="delayed") == {delayed.id}
        assert await listed(state="leased") == {running.id}
        assert await listed(state="paused") == set()
        await hands.finish(next(claim for claim in claims if claim.id == running.id))
        assert await listed() == {ready.id, delayed.id, elsewhere.id}
