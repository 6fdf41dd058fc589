"""Which unique key stands for a job: given, from its hook, or its canonical arguments."""

from __future__ import annotations

import contextlib
import hashlib
import json

from nimbusq.jobs import Job
from nimbusq.names import check_key

LOCK_KEY = "unique:"
"""Before the digest of a unique lock in the Locker's key space; its holder is the job's id."""


def unique_key(job: Job, body: bytes, key: str | None) -> str:
    """The checked unique key: `key`, else `unique_id()`, else a hash of the canonical arguments.

    Raises InvalidUniqueKey by Cyclone's rules, before anything is stored.
    """
    if key is None:
        key = job.unique_id()
    if key is None:
        key = canonical(body)
    return check_key("unique", key)


def canonical(body: bytes) -> str:
    """A key that is equal for equal arguments, whatever the order of their names."""
    with contextlib.suppress(
        ValueError
    ):  # a codec made something else of it: then equal bytes are equal arguments
        body = json.dumps(json.loads(body), sort_keys=True, separators=(",", ":")).encode()
    return "args:" + hashlib.sha256(body).hexdigest()
