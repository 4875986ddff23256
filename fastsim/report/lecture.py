"""The lecture's figures beside ours. Another code of the lecture is one entry here."""

from __future__ import annotations

import importlib
import inspect
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from fastsim.errors import InputError, nearest
from fastsim.lecture.progress import counted
from fastsim.lecture.verdicts import CANNOT_TELL, COUNTED, without_repeats
from fastsim.report.queueing import TIME
from fastsim.report.text import grid, number

if TYPE_CHECKING:
    from fastsim.lecture.verdicts import Row

# name -> "module:function" of the number of workers, imported on use.
CODES: dict[str, str] = {
    "01": "fastsim.lecture.code_01:code_01",
    "02": "fastsim.lecture.code_02:code_02",
    "03": "fastsim.lecture.code_03:code_03",
    "04": "fastsim.lecture.code_04:code_04",
    "exercises": "fastsim.lecture.exercises:exercises",
}

HEADER = ["", "quantity", "lecture", "ours", "low", "high", "seeds", "verdict"]


def rows(codes: Sequence[str], workers: int, rel_half_width: float | None = None) -> list[Row]:
    """Simulate what some codes of the lecture show; all of them, if none is named.

    Parameters
    ----------
    codes : sequence of str
        Keys of `CODES`.
    workers : int
    rel_half_width : float, optional
        To which means are known, for the codes that add seeds until they are.

    Raises
    ------
    InputError
        If there is no such code, or none of them takes a half-width.
    """
    for code in codes:
        if code not in CODES:
            raise InputError(f"lecture has no code {code!r}; {nearest(code, CODES)}")
    calls = [_function(code) for code in codes or CODES]
    takes = ["rel_half_width" in inspect.signature(call).parameters for call in calls]
    if rel_half_width is not None and not any(takes):
        raise InputError(f"rel_half_width is {rel_half_width}; code {codes[0]} has a fixed number of seeds")
    found: dict[tuple[str, str], Row] = {}  # codes share some exercises
    todo = counted(zip(calls, takes, strict=True), "lecture", len(calls), " codes")
    for call, takes_width in todo:
        options = {"rel_half_width": rel_half_width} if takes_width and rel_half_width is not None else {}
        for row in call(workers, **options):
            found.setdefault((row.id, row.quantity), row)
    return without_repeats(found.values())


def _function(code: str) -> Callable[..., Sequence[Row]]:
    module, name = CODES[code].split(":")
    return getattr(importlib.import_module(module), name)


def table(found: Sequence[Row]) -> str:
    """The figures with their verdicts, then why each verdict is what it is."""
    lines = [_cells(row) for row in found]
    notes = [f"{row.id} {row.quantity}: {row.note}" for row in found]
    about = "low and high: 95 % interval over seeds"
    about += f"; times in {TIME}" if any(row.unit == TIME for row in found) else ""
    return "\n".join([grid(HEADER, lines, left=2), "", about, "", *notes])


def markdown(found: Sequence[Row]) -> str:
    """The same as a page, with how many figures agree."""
    counts = Counter(row.verdict for row in found if row.verdict != "-")
    tally = ", ".join(f"{counts[verdict]} {verdict}" for verdict in (*COUNTED, CANNOT_TELL))
    lines = [
        "# The lecture's figures beside ours",
        "",
        "Written by `fastsim lecture --markdown`; `fastsim lecture 02` prints a part, `--json` gives data.",
        f"Of the lecture's figures and words, {tally}. Low and high: 95 % interval over seeds.",
        "A figure of one run also agrees if it lies in the spread of single runs as long as the lecture's,",
        "unless they range over more than a factor of two: then, and at overload, it cannot tell.",
        "Not counted: `variant` (parameters of ours, the conclusion under others), `repeats` (another row),",
        "`picked` (a seed chosen for its digits), and - (measured beside: the lecture says nothing).",
        "",
        _line([*HEADER, "why"]),
        _line(["---"] * (len(HEADER) + 1)),
        *(_line([*_cells(row), row.note]) for row in found),
    ]
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def _cells(row: Row) -> list[str]:
    values = (row.id, _with_unit(row), row.lecture, row.ours, row.low, row.high, row.seeds, row.verdict)
    return [number(value) for value in values]


def _with_unit(row: Row) -> str:
    return row.quantity if row.unit in ("", TIME) else f"{row.quantity} ({row.unit})"
