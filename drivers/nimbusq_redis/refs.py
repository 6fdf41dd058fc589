"""Job ids as they are stored: a UUID shrinks from 36 characters to 22, which saves 32 bytes a queued job.

Every other id is kept as it is, behind a mark that no shrunk one begins with.
"""

from __future__ import annotations

from binascii import a2b_base64, b2a_base64
from typing import Final

_MARK: Final = b"="
_UUID_LENGTH: Final = 36


def ref(job_id: str) -> bytes:
    """The stored form of an id."""
    if len(job_id) == _UUID_LENGTH and job_id[8] == job_id[13] == job_id[18] == job_id[23] == "-":
        try:
            raw = bytes.fromhex(job_id.replace("-", ""))
        except ValueError:
            raw = b""
        if len(raw) == 16 and job_id == job_id.lower():  # else it would not come back as it was
            return b2a_base64(raw, newline=False)[:22]
    return _MARK + job_id.encode("utf-8", "surrogatepass")


def is_shrunk(stored: bytes) -> bool:
    """Whether this is the stored form of a UUID."""
    return not stored.startswith(_MARK)


def unref(stored: bytes) -> str:
    """The id behind a stored form."""
    if stored.startswith(_MARK):
        return stored[1:].decode("utf-8", "surrogatepass")
    text = a2b_base64(stored + b"==").hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
