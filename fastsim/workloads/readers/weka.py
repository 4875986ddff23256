"""Sessions of kv-cache-tester (Weka): requests with times and hash ids of their session, subagents inside."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

from fastsim.errors import InputError
from fastsim.workloads.readers import fields
from fastsim.workloads.readers.columns import Columns, Complaints, Phrase
from fastsim.workloads.readers.options import ReadOptions
from fastsim.workloads.readers.source import Source

REQUESTS, BLOCK, SCOPE = "requests", "block_size", "hash_id_scope"
_TIME, _INPUT, _OUTPUT, _IDS = "t", "in", "out", "hash_ids"


def read(source: Source, complaints: Complaints, options: ReadOptions) -> Columns:
    """Read one session a line; a line of several requests is told apart by their times.

    The times of a subagent's requests count from its own start. Ids of two sessions are never the same,
    unless their scope is said to be global.
    """
    rows: list[tuple[int, float, int, int, list[int], str]] = []
    number: dict[Any, int] = {}
    sizes: dict[int, int] = {}
    names: list[str] = []
    for line, text in enumerate(source.data.split(b"\n"), start=1):
        if not text.strip():
            continue
        session = _session(line, text, complaints)
        if session is None:
            continue
        sizes.setdefault(session.get(BLOCK, 0), line)
        names.append(str(session.get("id", line)))
        scope = "" if session.get(SCOPE) == "global" else line
        for start_s, request in _requests(session, 0.0):
            row = _row(line, start_s, request, complaints)
            if row is not None:
                ids = [number.setdefault((scope, i), len(number)) for i in row[3]]
                rows.append((line, row[0], row[1], row[2], ids, f"{line} {names[-1]}"))
    if len(sizes) > 1:
        raise InputError(
            f"{source.name}, line {max(sizes.values())}, column {BLOCK}: the sessions have block sizes of "
            f"{', '.join(map(str, sizes))} tokens; they must have one"
        )
    lines, time, prompt, output, ids, session = zip(*rows, strict=True) if rows else ((),) * 6
    columns = Columns(
        np.array(lines, dtype=np.int64),
        np.array(time, dtype=np.float64),
        np.array(prompt, dtype=np.int64),
        np.array(output, dtype=np.int64),
        id_ptr=np.cumsum([0, *map(len, ids)]),
        ids=np.array([i for each in ids for i in each], dtype=np.int64),
        session=list(session),
        block_tok=next(iter(sizes), 0) or None,
        time_column=_TIME,
        prompt_column=_INPUT,
        output_column=_OUTPUT,
        there="the requests have none; ",
    )
    if len(names) > 1 and options.arrivals is None:
        said = f"warning: {len(names):,} sessions all start at 0; state arrivals to start them apart"
        columns.notes = (said,)
    return columns


def _session(line: int, text: bytes, complaints: Complaints) -> dict[str, Any] | None:
    try:
        session = msgspec.json.decode(text)
        size = session.get(BLOCK, 1)
        if isinstance(session[REQUESTS], list) and isinstance(size, int) and size > 0:
            return session
    except (msgspec.DecodeError, RecursionError, KeyError, TypeError, AttributeError):
        pass
    shown = text.decode("utf-8", "replace").strip()
    complaints.row(line, "", shown, f"must be a session: an object with a {BLOCK} and a list {REQUESTS!r}")
    return None


def _requests(session: dict[str, Any], start_s: float) -> Iterator[tuple[float, Any]]:
    """All requests of a session with the time that theirs count from, those of subagents in their places."""
    for request in session[REQUESTS]:
        inner = request.get(REQUESTS) if isinstance(request, dict) else None
        if isinstance(inner, list):
            at = request.get(_TIME, 0.0)
            yield from _requests(request, start_s + (at if isinstance(at, (int, float)) else 0.0))
        else:
            yield start_s, request


def _row(
    line: int, start_s: float, request: Any, complaints: Complaints
) -> tuple[float, int, int, list[int | str]] | None:
    """Return (time, input, output, ids) of a request, or None after a complaint."""
    column = _TIME
    try:
        if not isinstance(request, dict):
            column, request = "", {"": request}
            raise fields.Bad("must be an object")
        time = start_s + float(fields.time(request.get(_TIME)))
        column = _INPUT
        prompt = fields.count(_whole(request.get(_INPUT)))
        column = _OUTPUT
        output = fields.count(_whole(request.get(_OUTPUT)))
        column = _IDS
        ids = request.get(_IDS) or []
        if not isinstance(ids, list):
            raise fields.Bad("must be a list of whole numbers or texts")
        return time, prompt, output, [fields.hash_id(each) for each in ids]
    except fields.Bad as bad:
        value = request.get(column, Phrase("a request without it"))
        complaints.row(line, column, value, str(bad))
        return None


def _whole(value: Any) -> Any:
    """A float that is a whole number as an integer, anything else as it is."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
