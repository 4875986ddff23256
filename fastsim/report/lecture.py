"""The lecture's figures beside ours. Another code of the lecture is one entry here."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fastsim.errors import InputError, nearest
from fastsim.report.queueing import TIME
from fastsim.report.text import grid, number

if TYPE_CHECKING:
    from fastsim.lecture.verdicts import Row

# number -> "module:function" of the number of workers, imported on use.
CODES: dict[str, str] = {
    "01": "fastsim.lecture.code_01:code_01",
    "04": "fastsim.lecture.code_04:code_04",
}


def rows(code: str, workers: int) -> Sequence[Row]:
    """Simulate what a code of the lecture shows.

    Raises
    ------
    InputError
        If there is no such code.
    """
    if code not in CODES:
        raise InputError(f"lecture has no code {code!r}; {nearest(code, CODES)}")
    module, function = CODES[code].split(":")
    return getattr(importlib.import_module(module), function)(workers)


def table(found: Sequence[Row]) -> str:
    """The figures with their verdicts, then why each verdict is what it is."""
    header = ["", "quantity", "lecture", "ours", "low", "high", "seeds", "verdict"]
    values = (
        (row.id, _with_unit(row), row.lecture, row.ours, row.low, row.high, row.seeds, row.verdict)
        for row in found
    )
    lines = [[number(value) for value in row] for row in values]
    notes = [f"{row.id} {row.quantity}: {row.note}" for row in found]
    about = "low and high: 95 % interval over seeds"
    about += f"; times in {TIME}" if any(row.unit == TIME for row in found) else ""
    return "\n".join([grid(header, lines, left=2), "", about, "", *notes])


def _with_unit(row: Row) -> str:
    return row.quantity if row.unit in ("", TIME) else f"{row.quantity} ({row.unit})"
