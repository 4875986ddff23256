"""Files that carry a checksum over all of their bytes and stay what they are, Parquet or JSON.

The digest stands in the file itself, behind `MARK`, in a place that the format leaves to its user (metadata
of the Parquet footer, a field of the JSON). It is that of the file with 32 zeros in the digest's place, so it
can be checked without any parser of the format, and other programs read the file as they read any other.
A digest in the file's name would do as well, but then two runs that differ in what does not decide a result,
such as the sweep's name, would publish one point under two names.
"""

from __future__ import annotations

import hashlib

MARK = b"blake2b-128:"
UNSEALED = MARK.decode() + "0" * 32


def seal(content: bytes) -> bytes:
    """The content with the last `UNSEALED` in it, of which there must be one, filled in."""
    start = _place(content)
    return content[:start] + _digest(content, start) + content[start + 32 :]


def verify(content: bytes) -> None:
    """Raise ValueError, with the reason, unless the content is as it was sealed."""
    if not content:
        raise ValueError("it is empty (0 bytes)")
    start = _place(content)
    if content[start : start + 32] != _digest(content, start):
        raise ValueError("it does not match its checksum")


def _place(content: bytes) -> int:
    found = content.rfind(MARK)
    if found < 0 or found + len(MARK) + 32 > len(content):
        raise ValueError("it has no checksum")
    return found + len(MARK)


def _digest(content: bytes, start: int) -> bytes:
    hashed = hashlib.blake2b(digest_size=16)
    for piece in (content[:start], b"0" * 32, content[start + 32 :]):
        hashed.update(piece)
    return hashed.hexdigest().encode()
