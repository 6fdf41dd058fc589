"""A batch's state as the scripts tell it (see batch_state in lua/lib/batch.lua)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimbusq.driver import BatchState
from nimbusq.envelope import Envelope, decode


def read_batch(fields: Sequence[Any]) -> BatchState:
    """The state behind a script's answer."""
    (
        key,
        name,
        total,
        pending,
        failed,
        sealed,
        cancelled,
        on_failure,
        created,
        updated,
        finished,
        catch,
        errors,
    ) = fields
    template = decode(catch) if catch else None
    return BatchState(
        id=key.decode(),
        name=name.decode(),
        total=total,
        pending=pending,
        failed=failed,
        errors=tuple(error.decode("utf-8", "replace") for error in errors),
        sealed=sealed == b"1",
        cancelled=cancelled == b"1",
        cancel_on_failure=on_failure == b"1",
        created_at=int(created) / 1e6,
        updated_at=int(updated) / 1e6,
        finished_at=int(finished) / 1e6 if finished else None,
        catch=template if isinstance(template, Envelope) else None,
    )
