"""What a driver can do, as data, and the one comparison of a dispatch with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from nimbusq.envelope import Envelope


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a driver can do, as data. None for a limit means that there is none."""

    driver: str
    """The name that messages and the driver table use."""
    durable: bool
    """Jobs survive the end of this process."""
    lease: Literal["timed", "session", "none"]
    """timed: `extend` renews it. session: the driver keeps it alive by itself. none: claims never expire."""
    fenced: bool
    """A claim that was lost cannot settle."""
    atomic: bool
    """Unique slots, overlap keys, per-key rates, batches and chains move in one step with push, claim and settle."""
    transactional: bool
    """`push` and `settle` accept the application's transaction."""
    priorities: bool
    """Priority 1 (first) to 10, then arrival order."""
    cancellable: bool
    """A queued job can be cancelled by its id."""
    max_delay: float | None
    """Greatest delay in seconds that is kept at all."""
    max_lease: float | None
    """Longest run in seconds that can be kept leased."""
    max_body: int | None
    """Greatest wire size of a job in bytes."""
    exact_delay: float | None = None
    """Longer delays, in seconds, are kept but may end late; a store beside the driver keeps them better."""
    inline: bool = False
    """`send()` runs the job in the sender's process before it returns."""


@dataclass(frozen=True, slots=True)
class Need:
    """Something that a dispatch asks for beyond a plain job, and what to do where a driver lacks it."""

    name: str
    remedy: str


_STORE_REMEDY = (
    "Set QUEUE_STORE_URL (or Manager(..., store=...)) to a redis or database URL, or use such a driver."
)


def lacks_nothing(capabilities: Capabilities, *, tx: bool = False) -> bool:
    """The driver meets whatever need a dispatch may have."""
    c = capabilities
    return c.atomic and c.priorities and c.max_delay is None and (c.transactional or not tx)


def lacking(envelope: Envelope, capabilities: Capabilities, *, tx: bool = False) -> tuple[Need, ...]:
    """The needs of this dispatch that the driver cannot meet; the one place where they are compared.

    Every need is then met natively (nothing is returned for it), via the store beside the driver, or refused.
    """
    c = capabilities
    if lacks_nothing(c, tx=tx):
        return ()
    atomic = {
        "unique jobs": envelope.unique is not None,
        "jobs without overlap": envelope.overlap is not None,
        "rates per key": envelope.rate is not None,
        "batches": envelope.batch_id is not None,
        "chains": envelope.chain is not None,
    }
    needs = [Need(name, _STORE_REMEDY) for name, asked in atomic.items() if asked and not c.atomic]
    if envelope.priority != 5 and not c.priorities:
        needs.append(
            Need("priorities", "Use one queue per urgency, listed in order of preference. " + _STORE_REMEDY)
        )
    if c.max_delay is not None and envelope.delay > c.max_delay:
        needs.append(Need(f"delays above {c.max_delay:g} s", _STORE_REMEDY))
    if tx and not c.transactional:
        needs.append(Need("dispatch in a transaction", "Send after the commit, or use the database driver."))
    return tuple(needs)
