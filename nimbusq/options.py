"""What a job says of itself once, in its class line or its decorator."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from typing import Any, Final, Literal

from nimbusq.errors import InvalidOption
from nimbusq.names import check_name
from nimbusq.retry import Delays, check_delays, seconds

RunsIn = Literal["loop", "thread", "process"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """Defaults of a job; a dispatch may override most of them. Durations are seconds.

    queue: where it waits. retries: further runs after a failed one, so at most retries + 1 runs. timeout: limit
    of one run (None: none); running out of it is a failure. backoff: see `nimbusq.retry.Delays`.
    priority: 1 (first) to 10. expires: seconds after the dispatch within which it must start.
    tags, silenced: for the dashboard. dont_retry: errors that fail the job at once.
    runs_in: "loop" for coroutine functions, "thread" for others, "process" for code that keeps the interpreter busy.
    unique_for: how long `.unique_for()` holds its lock by default. overlap_limit, release_after, expire_after,
    max_releases: how `overlap_key()` behaves, see `nimbusq.envelope.Overlap`.
    name, aliases: the stable name that travels, and older names under which this job is also found.
    """

    name: str = ""
    aliases: tuple[str, ...] = ()
    queue: str = "default"
    retries: int = 3
    timeout: float | None = None
    backoff: Delays | None = None
    priority: int = 5
    expires: float | None = None
    tags: tuple[str, ...] = ()
    silenced: bool = False
    dont_retry: tuple[type[BaseException], ...] = ()
    runs_in: RunsIn | None = None
    unique_for: float = 3600.0
    overlap_limit: int = 1
    release_after: float = 3.0
    expire_after: float = 600.0
    max_releases: int | None = None
    abstract: bool = field(default=False, repr=False)

    def override(self, changes: Mapping[str, Any]) -> JobOptions:
        """A checked copy. Raises TypeError for an unknown option, InvalidOption for a bad value."""
        for name in changes:
            if name not in NAMES:
                near = difflib.get_close_matches(name, NAMES, n=1)
                hint = (
                    f" Did you mean {near[0]!r}?"
                    if near
                    else f" The options are: {', '.join(sorted(NAMES))}."
                )
                raise TypeError(f"unknown job option {name!r}.{hint}")
        checked = {name: CHECKS.get(name, _as_is)(value) for name, value in changes.items()}
        return replace(self, **checked)


def _as_is(value: Any) -> Any:
    return value


def check_queue(value: object) -> str:
    """A queue name, or InvalidName."""
    return check_name("queue", value)


def check_priority(value: object) -> int:
    """1 to 10, or InvalidOption."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 10:
        raise InvalidOption(f"priority is an integer from 1 (first) to 10 (last), not {value!r}.")
    return value


def check_retries(value: object) -> int:
    """0 or more, or InvalidOption."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**31 - 1:
        raise InvalidOption(
            f"retries is an integer of 0 or more (further runs after a failed one), not {value!r}."
        )
    return value


def check_duration(option: str) -> Any:
    """A check for an optional duration above 0."""

    def check(value: float | timedelta | None) -> float | None:
        return None if value is None else seconds(value, option, positive=True)

    return check


def check_tags(value: object) -> tuple[str, ...]:
    """Texts of at most 128 characters, at most 32 of them, or InvalidOption."""
    if not isinstance(value, Iterable):
        raise InvalidOption(f"tags are a list of texts, not {value!r}.")
    tags = (value,) if isinstance(value, str) else tuple(value)
    if len(tags) > 32 or not all(isinstance(tag, str) and 0 < len(tag) <= 128 for tag in tags):
        raise InvalidOption(f"tags are at most 32 texts of 1 to 128 characters, not {value!r}.")
    if not all(tag.isprintable() for tag in tags):
        raise InvalidOption(f"tags are printable: no control characters, no lone surrogates, not {value!r}.")
    return tags


def _check_limit(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidOption(f"an overlap limit is an integer of 1 or more, not {value!r}.")
    return value


def _check_max_releases(value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidOption(f"max_releases is an integer of 0 or more, or None for no limit, not {value!r}.")
    return value


def _check_runs_in(value: object) -> Any:
    if value not in (None, "loop", "thread", "process"):
        raise InvalidOption(f"runs_in is 'loop', 'thread' or 'process', not {value!r}.")
    return value


def _check_errors(value: object) -> tuple[type[BaseException], ...]:
    errors = (value,) if isinstance(value, type) or not isinstance(value, Iterable) else tuple(value)
    if not all(isinstance(error, type) and issubclass(error, BaseException) for error in errors):
        raise InvalidOption(f"dont_retry takes exception classes, not {value!r}.")
    return errors


def _check_flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidOption(f"silenced is True or False, not {value!r}.")
    return value


CHECKS: Final[dict[str, Any]] = {
    "name": lambda value: check_name("job", value),
    "aliases": lambda value: tuple(check_name("job", alias) for alias in value),
    "queue": check_queue,
    "retries": check_retries,
    "timeout": check_duration("timeout"),
    "backoff": check_delays,
    "priority": check_priority,
    "expires": check_duration("expires"),
    "tags": check_tags,
    "unique_for": check_duration("unique_for"),
    "overlap_limit": _check_limit,
    "release_after": check_duration("release_after"),
    "expire_after": check_duration("expire_after"),
    "max_releases": _check_max_releases,
    "runs_in": _check_runs_in,
    "dont_retry": _check_errors,
    "silenced": _check_flag,
}
NAMES: Final = frozenset(spec.name for spec in fields(JobOptions))
