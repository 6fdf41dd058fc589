"""What SQS allows, in seconds and bytes, as its API reference says (November 2026).

Servers that stand in for it enforce less than AWS does, so the driver keeps these limits itself.
"""

from __future__ import annotations

import math
from typing import Final

MAX_DELAY: Final = 900
"""Greatest DelaySeconds; longer delays hop."""
MAX_VISIBLE_IN: Final = 43_200
"""Longest time that a received message can stay hidden, counted from its receipt: 12 hours."""
LAST_RENEWAL: Final = 60
"""A lease is given up that long before the 12 hours are over, while the message is still surely hidden."""
MAX_POLL: Final = 5
"""Longest long poll that the driver asks for (SQS: 20): a poll that is killed hides the next message that long."""
MAX_MESSAGE: Final = 1_048_576
"""Greatest message, and greatest sum of the messages of one batch, in bytes with their attributes."""
MAX_BATCH: Final = MAX_MESSAGE // 2
"""Greatest sum that the driver sends at once: as JSON a batch gets longer, and aiohttp warns from 1 MiB on that
the event loop has to wait for it."""
RESERVED: Final = 256
"""Bytes of each message that are left free for the attribute that a copy carries."""
BATCH: Final = 10
"""Most entries of one batch, and most messages of one receive."""
RETENTION: Final = 1_209_600
"""How long a queue keeps a message that nobody takes: 14 days, the most that SQS offers."""


def whole(seconds: float) -> int:
    """SQS counts in whole seconds: rounded up, so that nothing is early and no lease too short."""
    return max(0, math.ceil(seconds - 1e-6))
