"""Free texts as every dialect can store them."""

from __future__ import annotations


def storable(text: str) -> str:
    """The text with NUL characters and lone surrogates, which PostgreSQL and UTF-8 refuse, written out."""
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()
