"""How jobs ended: told at once, or when they do."""

from __future__ import annotations

from nimbusq.driver import Ended
from nimbusq_sync.state import State


class MemoryResults:
    """`nimbusq.driver.Results` in memory."""

    def __init__(self, state: State) -> None:
        self._state = state

    async def wait(self, job_id: str, timeout: float) -> Ended | None:
        state = self._state
        deadline = state.clock.monotonic() + timeout
        with state.bells.at_job(job_id) as bell:
            while True:
                with state.lock:
                    bell.clear()
                    ended = ended_as(state, job_id)
                if ended:
                    return ended
                remaining = deadline - state.clock.monotonic()
                if remaining <= 0:
                    return None
                await bell.wait(state.clock, remaining)


def ended_as(state: State, job_id: str) -> Ended | None:
    """How the job ended, as far as the store still knows; None while it lives."""
    now = state.now()
    if job_id in state.rows:
        return None
    if (result := state.results.get(job_id, now)) is not None:
        return Ended(state="done", result=result)
    if failure := state.failed.get(job_id):
        return Ended(state="failed", error=failure[1].error)
    if entry := state.history.get(job_id):
        return Ended(state=entry[1].state, error=entry[1].error)
    return Ended(state="unknown")
