"""From an outcome to its settlement: the outcome and all that follows from it, which the store does in one step."""

from __future__ import annotations

from nimbusq.driver import Failed, Outcome, Settlement
from nimbusq.envelope import Envelope
from nimbusq.errors import UnreadableJob
from nimbusq.outcome import RunFacts, fingerprint, settlement, traceback_text
from nimbusq.worker.decide import failed_with
from nimbusq.worker.run import Run


async def conclude(run: Run, outcome: Outcome) -> Settlement:
    """The settlement: the outcome and all that follows from it. Raises StoreError."""
    try:
        return await _concluded(run, outcome)
    except UnreadableJob as error:  # what should follow cannot be read, so the job has not done all it should
        run.error = error
        return await _concluded(run, failed_with(error))


async def _concluded(run: Run, outcome: Outcome) -> Settlement:
    manager = run.around.manager
    return settlement(
        run.claim,
        outcome,
        facts=_facts(run, outcome),
        catch=await _catch_template(run) if isinstance(outcome, Failed) else None,
        history=manager.settings.history_limit > 0 and manager.stores.history is not None,
        result_ttl=manager.settings.result_ttl,
    )


def _facts(run: Run, outcome: Outcome) -> RunFacts:
    if not isinstance(outcome, Failed) or run.error is None:
        return RunFacts(duration=run.duration, worker=run.around.worker_id)
    header = run.header
    return RunFacts(
        duration=run.duration,
        worker=run.around.worker_id,
        traceback=traceback_text(run.error),
        fingerprint=fingerprint(header.name if header else "", outcome.kind, run.error),
    )


async def _catch_template(run: Run) -> Envelope | None:
    """The catch callback of a failed member's batch."""
    header = run.header
    if header is None or header.batch_id is None:
        return None
    batches = run.around.manager.stores.batches
    state = await batches.find(header.batch_id) if batches is not None else None
    return state.catch if state is not None else None
