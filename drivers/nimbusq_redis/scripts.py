"""The Lua scripts: one file a transition, parts that they share in ``lua/lib``.

A script names its parts in its header (``-- uses  time many …``) and its flags (``-- flags  allow-oom``, for the
calls that make room: claim and settle work on a full server, push is refused by it). The text that Redis gets is
the ``#!lua`` line, the parts in that order, and the script. It is constant: data travels in KEYS and ARGV only.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

_HEADER = re.compile(r"^-- (uses|flags) +(.+)$", re.MULTILINE)
_FOLDER = files("nimbusq_redis") / "lua"


@dataclass(frozen=True, slots=True)
class Script:
    """A script's text, and the SHA-1 by which a server that has seen it knows it."""

    name: str
    text: bytes
    sha: str


@cache
def script(name: str) -> Script:
    """The script of that name, with its parts."""
    body = (_FOLDER / f"{name}.lua").read_text("utf-8")
    header = dict(_HEADER.findall(body))
    parts = [(_FOLDER / "lib" / f"{part}.lua").read_text("utf-8") for part in header["uses"].split()]
    shebang = f"#!lua flags={header['flags']}" if "flags" in header else "#!lua"
    text = "\n".join([shebang, *parts, body]).encode()
    return Script(name, text, hashlib.sha1(text, usedforsecurity=False).hexdigest())


def names() -> list[str]:
    """Every script, for tests and for loading them ahead."""
    return sorted(
        entry.name.removesuffix(".lua") for entry in _FOLDER.iterdir() if entry.name.endswith(".lua")
    )
