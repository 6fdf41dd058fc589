"""Which queues a worker serves, as people write it: ``"default"``, ``["mail:5", "default"]``, ``{"mail": 5}``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nimbusq.errors import ConfigError
from nimbusq.names import check_name

Queues = str | Sequence[str] | Mapping[str, int | None]


def parse_queues(queues: Queues) -> dict[str, int | None]:
    """Names with their limits, in order. Raises InvalidName and ConfigError."""
    if isinstance(queues, Mapping):
        pairs = list(queues.items())
    else:
        texts = [queues] if isinstance(queues, str) else list(queues)
        pairs = [_parse_queue(text) for text in texts]
    if not pairs:
        raise ConfigError("a worker needs at least one queue.")
    for queue, limit in pairs:
        check_name("queue", queue)
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
            raise ConfigError(f"queue {queue}: the limit is an integer of 1 or more, not {limit!r}.")
    return dict(pairs)


def _parse_queue(text: str) -> tuple[str, int | None]:
    name, colon, limit = text.partition(":")
    if not colon:
        return name, None
    if not limit.isdecimal() or int(limit) < 1:
        raise ConfigError(f"queue {text!r}: after the colon stands how many slots it may fill, 1 or more.")
    return name, int(limit)
