"""Mooncake's JSON lines: timestamp, input_length, output_length; hash_ids and session_id may be missing."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import chain
from types import NoneType
from typing import Any

import msgspec
import numpy as np

from fastsim.workloads.readers import fields
from fastsim.workloads.readers.columns import MAX_TOK, Columns, Complaints, Phrase
from fastsim.workloads.readers.source import Source

KEYS = ("timestamp", "input_length", "output_length")
IDS = "hash_ids"
SESSION = "session_id"
_MISSING = Phrase("a row without it")


class _Row(msgspec.Struct, gc=False):
    """A line as it should be. Counts are read as floats, which accepts 374.0 and loses nothing up to 2^53."""

    timestamp: int | float
    input_length: float
    output_length: float
    hash_ids: list[int] | None = None
    session_id: int | str | None = None


_rows = msgspec.json.Decoder(_Row)
_keys = msgspec.json.Decoder(dict[str, msgspec.Raw])


def read(source: Source, complaints: Complaints) -> Columns:
    """Read the lines at once if nothing is odd about them, else one by one to find what is."""
    columns = _fast(source.data)
    return _careful(source.data, complaints) if columns is None else columns


def _fast(data: bytes) -> Columns | None:
    """Return the columns, or None if any line, value or key needs a closer look."""
    try:
        rows = _rows.decode_lines(data)
    except (msgspec.DecodeError, RecursionError):  # wrong types are a DecodeError, too
        return None
    n = len(rows)
    if n != data.count(b"\n") + (not data.endswith(b"\n")):
        return None  # blank lines, or objects that do not stand on a line each
    lists = [row.hash_ids for row in rows]
    with_ids = n - lists.count(None)
    colons = data.count(b":")
    ignored = () if colons == len(KEYS) * n + with_ids else _other_keys(data, colons)
    if ignored is None:
        return None
    time = np.array([row.timestamp for row in rows])
    prompt = np.array([row.input_length for row in rows])
    output = np.array([row.output_length for row in rows])
    if time.dtype.kind not in "if" or not (_counts(prompt) and _counts(output)):
        return None
    if not ((time >= 0) & (time < fields.MAX_TIME)).all() or with_ids not in (0, n):
        return None
    columns = Columns(np.arange(1, n + 1), time, prompt.astype(np.int64), output.astype(np.int64))
    columns.ignored = tuple(key for key in ignored if key != SESSION)
    if SESSION in ignored:
        columns.session = [_session(row.session_id) for row in rows]
    if with_ids:
        columns.id_ptr, columns.ids = _flatten(lists)
    return columns


def _session(name: int | str | None) -> str:
    return "" if name is None else str(name)


def _counts(values: np.ndarray) -> bool:
    return bool(((values >= 1) & (values <= MAX_TOK) & (values == np.rint(values))).all())


def _flatten(lists: list[Any], *, texts: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Return CSR arrays of lists of ids.

    Ids beyond 64 bits are numbered as they appear, and so are all if some may be texts: "05" is not 5.
    """
    ptr = np.zeros(len(lists) + 1, dtype=np.int64)
    np.cumsum(list(map(len, lists)), out=ptr[1:])
    if not texts:
        try:
            return ptr, np.fromiter(chain.from_iterable(lists), dtype=np.int64, count=int(ptr[-1]))
        except OverflowError:
            pass
    number: dict[Any, int] = {}
    each = chain.from_iterable(lists)
    return ptr, np.fromiter((number.setdefault(i, len(number)) for i in each), np.int64, int(ptr[-1]))


def _other_keys(data: bytes, colons: int) -> tuple[str, ...] | None:
    """Return the keys beyond the usual; None if a key may occur twice in a line, or hide in a text."""
    try:
        lines = _keys.decode_lines(data)
    except msgspec.DecodeError:
        return None
    if sum(map(len, lines)) != colons:
        return None
    return tuple(key for key in dict.fromkeys(chain.from_iterable(lines)) if key not in (*KEYS, IDS))


class _Twice(ValueError):
    """A key occurs twice in one object; the text is the key."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        names = [name for name, _ in pairs]
        raise _Twice(next(name for name in names if names.count(name) > 1))
    return row


def _number(text: str) -> Any:
    """Keep a number as written; one with an absurd exponent is as good as infinite, or zero."""
    try:
        return fields.number(text)
    except fields.Bad:
        return float(text)


_careful_json = json.JSONDecoder(object_pairs_hook=_object, parse_float=_number)


def _careful(data: bytes, complaints: Complaints) -> Columns:
    rows: list[tuple] = []
    names: dict[str, None] = {}
    for line, text in enumerate(data.split(b"\n"), start=1):
        row = _object_of_line(line, text, complaints) if text.strip() else None
        if row is not None:
            names.update(dict.fromkeys(row))
            values = _values(line, row, complaints)
            if values is not None:
                rows.append(values)
    rows = _all_with_ids_or_none(rows, complaints)
    line, time, prompt, output, ids, session = zip(*rows, strict=True) if rows else ((),) * 6
    columns = Columns(
        np.array(line, dtype=np.int64),
        np.array(time),
        np.array(prompt, dtype=np.int64),
        np.array(output, dtype=np.int64),
        ignored=tuple(name for name in names if name not in (*KEYS, IDS, SESSION)),
        session=list(session) if SESSION in names else None,
    )
    if any(each is not None for each in ids):
        columns.id_ptr, columns.ids = _flatten([each or [] for each in ids], texts=True)
    return columns


def _object_of_line(line: int, text: bytes, complaints: Complaints) -> dict[str, Any] | None:
    """Return the line's JSON object, or None after a complaint."""
    column, rule = "", "must be a JSON object"
    reason = rule
    try:
        row = _careful_json.decode(text.decode("utf-8").strip())
        if isinstance(row, dict):
            return row
    except _Twice as error:
        column, reason, rule = str(error), "must occur only once in a line", "must occur only once in a line"
    except json.JSONDecodeError as error:
        reason = f"{rule}, but there is this at character {error.pos + 1}: {error.msg}"
    except (ValueError, RecursionError):
        reason = rule = "must be a JSON object in UTF-8"
    complaints.row(line, column, text.decode("utf-8", "replace").strip(), reason, rule=rule)
    return None


def _id_list(value: Any) -> list[int | str] | None:
    if value is None:
        return None
    if not isinstance(value, list):
        raise fields.Bad("must be a list of whole numbers or texts")
    if set(map(type, value)) == {int}:
        return value
    return [fields.hash_id(each) for each in value]


def _session_name(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, str, NoneType)):
        raise fields.Bad("must be a whole number or a text")
    return _session(value)


_CHECKS: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    (KEYS[0], fields.time),
    (KEYS[1], fields.count),
    (KEYS[2], fields.count),
    (IDS, _id_list),
    (SESSION, _session_name),
)


def _values(line: int, row: dict[str, Any], complaints: Complaints) -> tuple | None:
    """Return (line, time, prompt, output, ids or None, session) of a row, or None after a complaint."""
    values: list[Any] = [line]
    for key, check in _CHECKS:
        if key not in row and key in KEYS:
            complaints.row(line, key, _MISSING, "must be there in every row")
            return None
        try:
            values.append(check(row.get(key)))
        except fields.Bad as bad:
            complaints.row(line, key, row[key], str(bad))
            return None
    return tuple(values)


def _all_with_ids_or_none(rows: list[tuple], complaints: Complaints) -> list[tuple]:
    """Return the rows that have ids if any has; a trace without any is fine."""
    if all(row[4] is None for row in rows):
        return rows
    for row in rows:
        if row[4] is None:
            complaints.row(row[0], IDS, _MISSING, "must be there in every row or in none")
    return [row for row in rows if row[4] is not None]
