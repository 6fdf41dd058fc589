"""Which values a stored header may have.

A header may be written by hand, or by another version. What passes here breaks neither a driver's arithmetic nor
the end of a job, and can be written again; the rest is unreadable, and parked with its bytes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, Final

Rule = Callable[[Any], bool]


def read(line: bytes) -> Any:
    """The JSON of a header's line. Raises ValueError, also for numbers that are not finite and names that stand
    twice, and RecursionError."""
    return _decoder.decode(line.decode("utf-8", "surrogatepass"))


def check(header: Mapping[str, Any]) -> None:
    """Raises ValueError for a known field, or a field of a known part, whose value cannot be used."""
    for name, value in header.items():
        if name in _PARTS:
            _check(value, _PARTS[name], f"{name}.")
        elif name in _FIELDS and not _FIELDS[name](value):
            raise ValueError(f"{name} cannot be {_shown(value)}")


def _check(part: Any, rules: Mapping[str, Rule], where: str) -> None:
    if type(part) is not dict:
        raise ValueError(f"{where[:-1]} cannot be {_shown(part)}")
    for name, rule in rules.items():
        if name in part and not rule(part[name]):
            raise ValueError(f"{where}{name} cannot be {_shown(part[name])}")


def _shown(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


# --- JSON ------------------------------------------------------------------------------------------------------


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("a name stands twice in one object")
    return values


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} is not a finite number")
    return number


_decoder = json.JSONDecoder(object_pairs_hook=_object, parse_float=_finite, parse_constant=_finite)


# --- rules -----------------------------------------------------------------------------------------------------


def _key(value: Any) -> bool:
    """A text that can be hashed, and stored as it is."""
    if type(value) is not str or not value or "\0" in value:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _name(value: Any) -> bool:
    """A text that every store takes as a column: no control characters, no lone surrogates."""
    return type(value) is str and value != "" and value.isprintable()


def _any_text(value: Any) -> bool:
    return type(value) is str


def _texts(value: Any) -> bool:
    return type(value) is list and all(type(item) is str for item in value)


def _object_of_texts(value: Any) -> bool:
    return type(value) is dict and all(type(item) is str for item in value.values())


def _seconds(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < 1e11


def _positive(value: Any) -> bool:
    return type(value) in (int, float) and 0 < value < 1e11


def _whole(low: int, high: int = 2**31 - 1) -> Rule:
    return lambda value: type(value) is int and low <= value <= high


def _one_of(*values: str) -> Rule:
    return lambda value: value in values


def _or_none(rule: Rule) -> Rule:
    return lambda value: value is None or rule(value)


_FIELDS: Final[Mapping[str, Rule]] = {
    "id": _name,
    "name": _name,
    "queue": _name,
    "max_attempts": _whole(1),
    "priority": _whole(1, 10),
    "delay": _seconds,
    "expires_in": _or_none(_seconds),
    "timeout": _or_none(_positive),
    "batch_id": _or_none(_name),
    "tags": lambda value: _texts(value) and all(map(str.isprintable, value)),
    "silenced": lambda value: type(value) is bool,
    "trace": _object_of_texts,
    "meta": lambda value: type(value) is dict,
}
_PARTS: Final[Mapping[str, Mapping[str, Rule]]] = {
    "unique": {"key": _key, "mode": _one_of("slot", "lock"), "ttl": _or_none(_positive)},
    "overlap": {
        "key": _key,
        "limit": _whole(1),
        "release_after": _seconds,
        "expire_after": _seconds,
        "max_releases": _or_none(_whole(0)),
    },
    "rate": {"key": _key, "per_second": _positive, "burst": _whole(1)},
    "chain": {
        "id": _name,
        "index": _whole(0),
        "name": lambda value: value == "" or _name(value),
        "rest": _texts,
        "on_failure": _or_none(_any_text),
    },
    "callback": {
        "kind": _one_of("then", "finally", "catch", "on_failure"),
        "of": _name,
        "job_id": _or_none(_any_text),
        "job_name": _or_none(_any_text),
        "error": _or_none(_any_text),
    },
}
