"""What may be a name, and what a key."""

from __future__ import annotations

import re

from nimbusq.errors import InvalidName, InvalidUniqueKey

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


def check_name(kind: str, name: object) -> str:
    """Return `name` if it fits the one grammar for queues, jobs, batches, chains and schedules.

    Raises InvalidName otherwise; `kind` says in the message what was named.
    """
    if isinstance(name, str) and _NAME.fullmatch(name):
        return name
    raise InvalidName(
        f"{kind} name {shown(name)} is not allowed: "
        "use 1 to 64 of A-Z a-z 0-9 _ . - and begin with a letter or digit."
    )


def check_key(kind: str, key: object) -> str:
    """Return `key` if it obeys Cyclone's key rules: non-empty, valid UTF-8, no NUL, at most 256 bytes.

    An empty key would be one global lock for that kind of job. Raises InvalidUniqueKey.
    """
    if not isinstance(key, str):
        raise InvalidUniqueKey(f"the {kind} key must be a str, not {type(key).__name__}.")
    if not key:
        raise InvalidUniqueKey(f"the {kind} key is empty: every empty key would be the same key.")
    if "\0" in key:
        raise InvalidUniqueKey(f"the {kind} key has a NUL character.")
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        raise InvalidUniqueKey(f"the {kind} key is not valid UTF-8 (a lone surrogate).") from None
    if size > 256:
        raise InvalidUniqueKey(f"the {kind} key has {size} bytes; at most 256 are allowed.")
    return key


def shown(name: object) -> str:
    """A name as messages quote it, however long or odd."""
    text = ascii(name)
    return text if len(text) <= 80 else f"{text[:77]}..."
