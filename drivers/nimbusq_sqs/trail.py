"""The trail: what earlier messages of a job leave to the next one.

SQS counts receives of one message and keeps when it was sent. Whatever must outlive the message (attempts of
earlier copies, releases, what is left of a long delay) travels in one message attribute; a job's first message
has none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

TRAIL: Final = "nimbusq"
"""Name of the message attribute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trail:
    """What earlier messages of the same job leave to the next one.

    attempts, releases, fence: counted before this message. delay: seconds for which this message was held back
    when it was sent; None takes the envelope's. pushed: when the job was first sent, in seconds since the epoch on
    the server's clock. id: of a job whose header cannot be read.
    """

    attempts: int = 0
    releases: int = 0
    fence: int = 0
    delay: float | None = None
    pushed: float | None = None
    id: str | None = None

    def to_attribute(self) -> str:
        fields = {name: value for name in _TRAIL_TYPES if (value := getattr(self, name)) not in (None, 0)}
        if self.delay == 0:
            fields["delay"] = 0
        return json.dumps(fields, separators=(",", ":"))

    @classmethod
    def from_attribute(cls, text: str) -> Self:
        """Never raises: what is not ours to read counts as no trail."""
        try:
            fields = dict(json.loads(text))
        except (ValueError, TypeError):
            return cls()
        known: dict[str, Any] = {
            name: fields[name] for name, kind in _TRAIL_TYPES.items() if isinstance(fields.get(name), kind)
        }
        return cls(**known)


_TRAIL_TYPES: Final[Mapping[str, type | tuple[type, ...]]] = {
    "attempts": int,
    "releases": int,
    "fence": int,
    "delay": (int, float),
    "pushed": (int, float),
    "id": str,
}
