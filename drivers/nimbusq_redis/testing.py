"""What only tests read: the audit of every transition."""

from __future__ import annotations

import json
from typing import Any, TypeAlias

from nimbusq_redis.link import Link
from nimbusq_redis.refs import unref

AuditTuple: TypeAlias = tuple[str, str, str, int, dict[str, Any]]


async def read_audit(link: Link) -> list[AuditTuple]:
    """The audit stream, in order."""
    rows = await link.command("XRANGE", link.key("audit"), "-", "+", seconds=60.0)
    return [_event(fields) for _, fields in rows]


def _event(fields: list[bytes] | dict[bytes, bytes]) -> AuditTuple:
    values = fields if isinstance(fields, dict) else dict(zip(fields[::2], fields[1::2], strict=True))
    extra = json.loads(values[b"extra"])
    if "member_ref" in extra:
        extra.setdefault("member", unref(extra.pop("member_ref").encode()))
    return (
        values[b"event"].decode(),
        unref(values[b"ref"]),
        values[b"token"].decode(),
        int(values[b"attempt"]),
        extra if isinstance(extra, dict) else {},
    )
