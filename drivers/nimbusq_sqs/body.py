"""Bodies: any bytes as text that SQS takes, readable where it can be."""

from __future__ import annotations

import base64
import re
from typing import Final

_BASE64: Final = "base64:"
UNSAFE: Final = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What SQS refuses in a body (it takes the characters of XML 1.0), and CR, which an XML reader may change."""


def to_text(raw: bytes) -> str:
    """The bytes as a body that SQS takes: as they are, or in base64 behind a mark."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        text = ""
    if text and not text.startswith(_BASE64) and not UNSAFE.search(text):
        return text
    return _BASE64 + base64.b64encode(raw).decode()


def from_text(text: str) -> bytes:
    """What `to_text` was given; text that somebody else put there comes back as its bytes."""
    if text.startswith(_BASE64):
        try:
            return base64.b64decode(text[len(_BASE64) :], validate=True)
        except ValueError:
            pass  # not ours
    return text.encode("utf-8", "surrogatepass")
