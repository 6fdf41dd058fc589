"""What a driver's test file supplies: one adapter in a fresh namespace, and power over its time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from nimbusq.driver import Adapter, Pushed


class AdapterUnderTest(Adapter, Protocol):
    """An adapter in testing mode."""

    async def push_raw(self, queue: str, raw: bytes, *, job_id: str | None = None) -> Pushed:
        """Put bytes into the queue as a job, due now, whether they are an envelope or not."""
        ...


class Env(Protocol):
    """One opened adapter, alone in its namespace; closed by the fixture that made it."""

    @property
    def adapter(self) -> AdapterUnderTest: ...

    async def advance(self, seconds: float) -> None:
        """Let the store's time pass: a fake clock, a skew of the server's, or a real wait."""
        ...

    async def second(self) -> AdapterUnderTest:
        """Another opened adapter on the same store: how another process sees it. Closed with the env."""
        ...

    async def audit(self) -> Sequence[Sequence[Any]]:
        """Every transition so far (see `nimbusq.testing.audit`); empty where the backend keeps none."""
        ...
