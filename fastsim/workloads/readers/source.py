"""Bytes of a trace file to text: plain, gzip or Parquet (told by content), without a byte-order mark."""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from fastsim.errors import InputError
from fastsim.workloads.readers import parquet
from fastsim.workloads.summary import Finding

_GZIP = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS
_HEAD = 8192
_PIECE = 1 << 24  # bytes expanded at a time
MAX_TEXT_GB = 1.0  # that a gzip file may expand to, unless more is asked for
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f\x7f]")
# What is often mistaken for a trace, by how it begins, and what to do instead.
_NO_TRACES = {
    b"version https://git-lfs.github.com/spec/": "this is a Git LFS pointer, which only stands for the file; "
    "fetch the file itself by: git lfs pull",
    b"trace_version:": "this is the header of a BLIS trace; give the CSV file beside it",
    b"PK\x03\x04": "this is a zip archive; unpack it",
    b"\x28\xb5\x2f\xfd": "this is compressed by zstd; unpack it, or compress it by gzip",
    b"\xfd7zXZ": "this is compressed by xz; unpack it, or compress it by gzip",
    b"BZh": "this is compressed by bzip2; unpack it, or compress it by gzip",
    b"ARROW1": "this is an Arrow file, which is not read; write Parquet",
}


@dataclass
class Source:
    """A file's name and its text as bytes, with what had to be repaired to get at them, and notes."""

    name: str
    data: bytes
    repaired: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


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


def unpack(name: str, raw: bytes, *, skip_bad: bool, max_text_gb: float = MAX_TEXT_GB) -> Source:
    """Decompress or decode if need be, strip the byte-order mark, and put one JSON object on a line.

    Parameters
    ----------
    name : str
        File name for messages.
    raw : bytes
    skip_bad : bool
        Keep what can be read of a gzip file that was cut short, and say so, instead of refusing it.
    max_text_gb : float
        Refuse a gzip file that expands to more.

    Raises
    ------
    InputError
        For an empty file, a broken or truncated gzip stream, UTF-16, and what is no trace at all.
    """
    source = Source(name, raw)
    if raw.startswith(_GZIP):
        source = _gunzip(name, raw, skip_bad, max_text_gb)
    if source.data.startswith(parquet.MAGIC):
        source.data = parquet.to_text(name, source.data)
        source.notes.append("a Parquet file: line 1 of a message is its first row, or the names if it is CSV")
    if source.data.startswith(_UTF_16):
        raise InputError(f"{name}: the text is UTF-16, which is not read; save it as UTF-8")
    source.data = source.data.removeprefix(_BOM)
    if not source.data.strip():
        raise InputError(f"{name}: the file is empty; there is no request in it")
    _refuse_no_text(name, source.data)
    return _by_lines(source)


def _refuse_no_text(name: str, data: bytes) -> None:
    head = data[:_HEAD]
    for start, what in _NO_TRACES.items():
        if head.startswith(start):
            raise InputError(f"{name}: {what}")
    if 20 * len(_CONTROL.findall(head)) > len(head):
        raise InputError(
            f"{name}: the file is binary; a trace is text (CSV or JSON), gzip of that, or Parquet"
        )


def _by_lines(source: Source) -> Source:
    """Put the elements of a JSON array, or an object over several lines, on a line each."""
    text = source.data.lstrip()
    first, rest = text[:1], text.split(b"\n", 1)
    if first == b"[":
        try:
            elements = msgspec.json.decode(text, type=list[msgspec.Raw])
        except (msgspec.DecodeError, RecursionError) as error:
            raise InputError(f"{source.name}: it begins as a JSON array, but is none: {error}") from None
        source.data = b"\n".join(map(_on_a_line, elements)) + b"\n"
        if not elements:
            raise InputError(f"{source.name}: the JSON array is empty; there is no request in it")
        source.notes.append("one JSON array: line n of a message is its n-th element")
    elif first == b"{" and len(rest) > 1 and not rest[0].rstrip().endswith(b"}"):
        try:
            source.data = _on_a_line(msgspec.json.decode(text, type=msgspec.Raw)) + b"\n"
        except (msgspec.DecodeError, RecursionError):
            return source  # the reader says what is wrong with the line
        source.notes.append("one JSON object, read as a single line")
    return source


def _on_a_line(element: msgspec.Raw) -> bytes:
    """A JSON value without line breaks, which it holds only between its parts."""
    return bytes(element).replace(b"\r", b" ").replace(b"\n", b" ")


def _gunzip(name: str, raw: bytes, skip_bad: bool, most_gb: float) -> Source:
    try:
        text, whole = _expanded(name, raw, most_gb)
    except zlib.error as error:
        raise InputError(f"{name}: the gzip data are damaged: {error}") from None
    if whole:
        return Source(name, text)
    problem = f"the gzip data end early, after {len(text):,} bytes of text"
    if not skip_bad:
        raise InputError(f"{name}: {problem}; fetch the file again, or skip bad rows to use them")
    return Source(name, text, [Finding(problem, 1)])


def _expanded(name: str, raw: bytes, most_gb: float) -> tuple[bytes, bool]:
    """The text of all members of a gzip file, and whether none was cut short.

    Piece by piece, and no more than the limit: a few megabytes of zeros can stand for gigabytes.
    """
    most, size, texts, rest = int(most_gb * 1e9), 0, [], raw
    while rest:
        member, piece = zlib.decompressobj(_GZIP_OR_ZLIB), b""
        while not member.eof and (rest or len(piece) == _PIECE):  # a full piece may have more behind it
            piece = member.decompress(rest, _PIECE)
            rest = member.unconsumed_tail
            texts.append(piece)
            size += len(piece)
            if size > most:
                raise InputError(
                    f"{name}: the text is more than {most_gb:g} GB when expanded; "
                    "raise max_text_gb if it is to be read"
                )
        if not member.eof:
            return b"".join(texts), False
        rest = member.unused_data.lstrip(b"\0")
    return texts[0] if len(texts) == 1 else b"".join(texts), True
