"""Bytes of a trace file: plain or gzip (told by content), without a byte-order mark."""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass, field
from pathlib import Path

from fastsim.errors import InputError
from fastsim.workloads.summary import Finding

_GZIP = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS


@dataclass
class Source:
    """A file's name and its text as bytes, with what had to be repaired to get at them."""

    name: str
    data: bytes
    repaired: list[Finding] = field(default_factory=list)


def file_bytes(path: str | Path) -> bytes:
    """Return the raw bytes of a file.

    Raises
    ------
    InputError
        If it does not exist, is a folder, or cannot be read.
    """
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:  # a NUL in a path is a ValueError
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"path: {str(path)!r} cannot be read: {reason}") from None


def unpack(name: str, raw: bytes, *, skip_bad: bool) -> Source:
    """Decompress if need be and strip the byte-order mark.

    Parameters
    ----------
    name : str
        File name for messages.
    raw : bytes
    skip_bad : bool
        Keep what can be read of a gzip file that was cut short, and say so, instead of refusing it.

    Raises
    ------
    InputError
        For an empty file, a broken or truncated gzip stream, or UTF-16.
    """
    source = Source(name, raw)
    if raw.startswith(_GZIP):
        source = _gunzip(name, raw, skip_bad)
    if source.data.startswith(_UTF_16):
        raise InputError(f"{name}: the text is UTF-16, which is not read; save it as UTF-8")
    source.data = source.data.removeprefix(_BOM)
    if not source.data.strip():
        raise InputError(f"{name}: the file is empty; there is no request in it")
    return source


def _gunzip(name: str, raw: bytes, skip_bad: bool) -> Source:
    try:
        return Source(name, gzip.decompress(raw))
    except EOFError:
        kept = _what_can_be_read(raw)
        problem = f"the gzip data end early, after {len(kept):,} bytes of text"
        if not skip_bad:
            raise InputError(
                f"{name}: {problem}; fetch the file again, or skip bad rows to use them"
            ) from None
        return Source(name, kept, [Finding(problem, 1)])
    except (OSError, zlib.error) as error:
        raise InputError(f"{name}: the gzip data are damaged: {error}") from None


def _what_can_be_read(raw: bytes) -> bytes:
    """Return the text of all members of a gzip file up to the place where it was cut."""
    text, rest = [], raw
    while rest.startswith(_GZIP):
        member = zlib.decompressobj(_GZIP_OR_ZLIB)
        try:
            text.append(member.decompress(rest))
        except zlib.error:
            break
        rest = member.unused_data
    return b"".join(text)
