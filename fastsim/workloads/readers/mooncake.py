"""JSON lines as Mooncake has them: timestamp, input_length, output_length, hash_ids, session_id.

All but the prompt's length may be missing. Rows of a session without a timestamp have a `delay` after the
answer before them. Bailian's traces are the same with links from a turn to the one before it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from itertools import chain
from types import NoneType
from typing import Any

import msgspec
import numpy as np

from fastsim.workloads.readers import fields
from fastsim.workloads.readers.columns import MAX_TOK, UNSTATED, Columns, Complaints, Phrase, listed
from fastsim.workloads.readers.options import ReadOptions
from fastsim.workloads.readers.source import Source

KEYS = ("timestamp", "input_length", "output_length")
IDS = "hash_ids"
SESSION = "session_id"
DELAY = "delay"
LINKS = ("chat_id", "parent_chat_id")
_MISSING = Phrase("a row without it")


class _Row(msgspec.Struct, gc=False):
    """A line as it should be. Counts are read as floats, which accepts 374.0 and loses nothing up to 2^53."""

    timestamp: int | float
    input_length: float
    output_length: float
    hash_ids: list[int] | None = None
    session_id: int | str | None = None


class _LinkedRow(_Row, gc=False):
    """The same of Bailian's."""

    chat_id: int | str | None = None
    parent_chat_id: int | str | None = None


_rows = msgspec.json.Decoder(_Row)
_linked_rows = msgspec.json.Decoder(_LinkedRow)
_keys = msgspec.json.Decoder(dict[str, msgspec.Raw])


def read(source: Source, complaints: Complaints, options: ReadOptions) -> Columns:
    """Read the lines at once if nothing is odd about them, else one by one to find what is."""
    columns = _fast(source.data)
    return _careful(source.data, complaints) if columns is None else columns


def read_linked(source: Source, complaints: Complaints, options: ReadOptions) -> Columns:
    """As `read`, with sessions made of the turns that are linked to each other."""
    columns = _fast(source.data, linked=True)
    return _careful(source.data, complaints, linked=True) if columns is None else columns


def _fast(data: bytes, *, linked: bool = False) -> Columns | None:
    """Return the columns, or None if any line, value or key needs a closer look."""
    try:
        rows: list[Any] = (_linked_rows if linked else _rows).decode_lines(data)
    except (msgspec.DecodeError, RecursionError):  # wrong types are a DecodeError, too
        return None
    n = len(rows)
    if n != data.count(b"\n") + (not data.endswith(b"\n")):
        return None  # blank lines, or objects that do not stand on a line each
    lists = [row.hash_ids for row in rows]
    with_ids = n - lists.count(None)
    colons = data.count(b":")
    ignored = () if colons == len(KEYS) * n + with_ids else _other_keys(data, colons)
    if ignored is None or DELAY in ignored:
        return None
    time = np.array([row.timestamp for row in rows])
    prompt = np.array([row.input_length for row in rows])
    output = np.array([row.output_length for row in rows])
    if time.dtype.kind not in "if" or not (_counts(prompt) and _counts(output)):
        return None
    if not ((time >= 0) & (time < fields.MAX_TIME)).all() or with_ids not in (0, n):
        return None
    columns = Columns(np.arange(1, n + 1), time, prompt.astype(np.int64), output.astype(np.int64))
    used = LINKS if linked else (SESSION,)
    columns.ignored = tuple(key for key in ignored if key not in used)
    if linked:
        _set_threads(columns, [_session(row.chat_id) for row in rows], [row.parent_chat_id for row in rows])
    elif SESSION in ignored:
        columns.session = [_session(row.session_id) for row in rows]
    if with_ids:
        columns.id_ptr, columns.ids = _flatten(lists)
    return columns


def _session(name: int | str | None) -> str:
    return "" if name is None else str(name)


def _counts(values: np.ndarray) -> bool:
    return bool(((values >= 0) & (values <= MAX_TOK) & (values == np.rint(values))).all())


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


def _careful(data: bytes, complaints: Complaints, *, linked: bool = False) -> Columns:
    rows: list[tuple] = []
    names: dict[str, None] = {}
    lines = data.split(b"\n")
    for line, text in enumerate(lines, start=1):
        last = line == len(lines) and bool(rows)
        row = _object_of_line(line, text, complaints, may_be_cut=last) if text.strip() else None
        if row is not None:
            names.update(dict.fromkeys(row))
            values = _values(line, row, complaints)
            if values is not None:
                rows.append(values)
    rows = _all_with_ids_or_none(rows, complaints)
    line, time, prompt, output, ids, session, delay, chat, parent = (
        zip(*rows, strict=True) if rows else ((),) * 9
    )
    used = (*KEYS, IDS, DELAY, *(LINKS if linked else (SESSION,)))
    columns = Columns(
        np.array(line, dtype=np.int64),
        np.zeros(len(line)),
        np.array(prompt, dtype=np.int64),
        np.array(output, dtype=np.int64),
        there=f"the rows have {listed(names)}; ",
        ignored=tuple(name for name in names if name not in used),
        session=list(session) if SESSION in names else None,
    )
    if linked:
        _set_threads(columns, list(map(_session, chat)), parent)
    if any(each is not None for each in ids):
        columns.id_ptr, columns.ids = _flatten([each or [] for each in ids], texts=True)
    return _with_times(columns, time, delay, complaints)


def _with_times(columns: Columns, time: tuple, delay: tuple, complaints: Complaints) -> Columns:
    """Return the columns with their times, and which of them count from the answer before.

    A delay of a session's first row counts from its timestamp or, without one, from the start of the trace.
    """
    if all(each is None for each in (*time, *delay)):
        columns.untimed = True
        return columns
    n = len(columns)
    values: list[Any] = [0] * n
    waits, good = np.zeros(n, dtype=bool), np.ones(n, dtype=bool)
    opened: set[str] = set()
    from_start = 0
    for i, (at, after) in enumerate(zip(time, delay, strict=True)):
        name = columns.session[i] if columns.session else ""
        later = bool(name) and name in opened
        problem = _unclear_time(at, after, later, bool(name))
        if problem:
            complaints.row(int(columns.line[i]), *problem)
            good[i] = False
            continue
        opened.add(name)
        waits[i] = later and at is None
        values[i] = after if waits[i] else (at or 0) + (after or 0)
        from_start += after is not None and not later
    columns.time = np.array(values)
    columns.waits = waits if waits.any() else None
    if from_start:
        said = f"sessions whose first row has a delay, taken for an offset from the start: {from_start:,}"
        columns.notes = (*columns.notes, said)
    return columns.keep(good)


def _unclear_time(at: Any, after: Any, later: bool, named: bool) -> tuple[str, Any, str] | None:
    """What is wrong with a row's timestamp and delay: column, value and what must be."""
    if at is None and after is None:
        return KEYS[0], _MISSING, f"must be there in every row, or a {DELAY} in the later rows of a session"
    if after is not None and not named:
        return DELAY, after, f"must be in a row with a {SESSION}"
    if at is not None and after is not None and later:
        return DELAY, after, f"must not stand beside a {KEYS[0]}, save in the first row of a session"
    return None


def _set_threads(columns: Columns, chats: list[str], parents: Iterable[Any]) -> None:
    """Set sessions: a chat and all that goes back to it by its parents; those of a lost parent are one."""
    parent = {chat: _session(name) for chat, name in zip(chats, parents, strict=True) if chat}
    lost: set[str] = set()
    root: dict[str, str] = {}
    for chat in parent:
        trail: dict[str, None] = {}
        at = chat
        while at not in root and at not in trail and parent.get(at, "") not in ("", "-1"):
            trail[at] = None
            at = parent[at]
        if at not in parent:
            lost.add(at)
        for name in (*trail, at):
            root[name] = root.get(at, at)
    columns.session = [root.get(chat, "") for chat in chats]
    if lost:
        said = f"parents that are not in the file, each taken for the start of a session: {len(lost):,}"
        columns.notes = (*columns.notes, said)


def _object_of_line(
    line: int, text: bytes, complaints: Complaints, *, may_be_cut: bool
) -> dict[str, Any] | None:
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
        if may_be_cut and text.lstrip().startswith(b"{"):  # and no end of line follows it
            complaints.cut_short(line)
            return None
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


# Of each key: what checks its value, and what stands for it where it is missing, if it may be.
_CHECKS: tuple[tuple[str, Callable[[Any], Any], Any], ...] = (
    (KEYS[0], fields.time, None),
    (KEYS[1], fields.count, _MISSING),
    (KEYS[2], fields.count, UNSTATED),
    (IDS, _id_list, None),
    (SESSION, _session_name, ""),
    (DELAY, fields.time, None),
    (LINKS[0], _session_name, ""),
    (LINKS[1], _session_name, ""),
)


def _values(line: int, row: dict[str, Any], complaints: Complaints) -> tuple | None:
    """Return the line and the values of `_CHECKS` of a row, or None after a complaint."""
    values: list[Any] = [line]
    for key, check, missing in _CHECKS:
        if key not in row or (row[key] is None and missing is not _MISSING):
            if missing is _MISSING:
                complaints.row(line, key, _MISSING, "must be there in every row")
                return None
            values.append(missing)
            continue
        try:
            values.append(check(row[key]))
        except fields.Bad as bad:
            complaints.row(line, key, row[key], str(bad))
            return None
    return tuple(values)


def _all_with_ids_or_none(rows: list[tuple], complaints: Complaints) -> list[tuple]:
    """Return the rows that have ids if any has; a trace without any is fine, and so is a session."""
    with_ids = {row[5] for row in rows if row[4] is not None}
    if not with_ids:
        return rows
    kept = [row for row in rows if row[4] is not None or (row[5] and row[5] not in with_ids)]
    for row in rows:
        if row[4] is None and (not row[5] or row[5] in with_ids):
            complaints.row(
                row[0], IDS, _MISSING, "must be there in every row or in none, or none of its session"
            )
    return kept
