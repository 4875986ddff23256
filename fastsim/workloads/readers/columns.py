"""What a format's reader hands over: columns of numbers, the lines they stood in, and complaints."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fastsim.errors import InputError
from fastsim.workloads.csr import gather
from fastsim.workloads.summary import Finding

MAX_TOK = 10**9  # tokens of one prompt or answer: more is a slip, and sums of fewer stay within int64


class Complaints:
    """Refuses the first bad row, or counts bad rows when they are to be skipped.

    Parameters
    ----------
    file : str
        File name for messages.
    skip_bad : bool
        Count and drop instead of refusing.
    """

    def __init__(self, file: str, skip_bad: bool) -> None:
        self.file = file
        self.skip_bad = skip_bad
        self._seen: dict[str, tuple[int, str]] = {}

    def row(self, line: int, column: str, value: Any, reason: str, *, rule: str = "") -> None:
        """Complain about one value.

        Parameters
        ----------
        line : int
        column : str
            Empty where the whole line is meant.
        value : object
            What stands there; a `Phrase` is quoted without quotation marks.
        reason : str
            Follows "it" in a sentence, so it starts with "must".
        rule : str
            Dropped rows are counted by it; given where `reason` names numbers of the row.
        """
        column = printable(column)
        where = f"line {line}" + (f", column {column}" if column else "")
        shown = show(value)
        if not self.skip_bad:
            raise InputError(
                f"{self.file}, {where}: {shown} is not allowed; it {reason} (skip_bad leaves such rows out)"
            )
        rule = f"{column} {rule or reason}" if column else f"the row {rule or reason}"
        rows, first = self._seen.get(rule, (0, f"line {line}: {shown}"))
        self._seen[rule] = (rows + 1, first)

    def rows(self, bad: np.ndarray, lines: np.ndarray, column: str, values: Any, reason: str) -> None:
        """Complain about every row where the mask `bad` holds; `values` is an array or a list."""
        for i in np.flatnonzero(bad):
            self.row(int(lines[i]), column, values[i], reason)

    def findings(self) -> tuple[Finding, ...]:
        """Return what was dropped, in the order in which reasons first came up."""
        return tuple(Finding(rule, rows, first) for rule, (rows, first) in self._seen.items())

    @property
    def count(self) -> int:
        """Rows dropped so far."""
        return sum(rows for rows, _ in self._seen.values())


class Phrase(str):
    """A description of what stands in a file, as opposed to its text."""


def show(value: Any) -> str:
    """Return a value as a short piece of a sentence."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e16:
        value = int(value)  # most likely written so
    text = value if isinstance(value, str) else str(value)
    text = text if len(text) <= 60 else text[:57] + "..."
    return repr(text) if isinstance(value, str) and not isinstance(value, Phrase) else text


def printable(name: str) -> str:
    """Return a name that any terminal can show: what is no visible character is written as its code."""
    return name if name.isprintable() else repr(name)[1:-1]


@dataclass
class Columns:
    """Rows of a trace in file order, every value on its own already checked.

    Parameters
    ----------
    line : ndarray of int64, shape (n,)
        Line numbers in the file, from 1.
    time : ndarray of int64 or float64, shape (n,)
        Times as written; nanoseconds since 1970 where the file has dates.
    prompt_tok, output_tok : ndarray of int64, shape (n,)
        1 to `MAX_TOK`.
    id_ptr, ids : ndarray of int64, optional
        Hash ids of each prompt's blocks in CSR form; None where the format has none.
    session : list of str, optional
        Session names, empty where unknown.
    time_column, prompt_column, id_column : str
        Names for messages.
    ignored : tuple of str
        Columns of the file that play no part.
    notes : tuple of str
    """

    line: np.ndarray
    time: np.ndarray
    prompt_tok: np.ndarray
    output_tok: np.ndarray
    id_ptr: np.ndarray | None = None
    ids: np.ndarray | None = None
    session: list[str] | None = None
    time_column: str = "timestamp"
    prompt_column: str = "input_length"
    id_column: str = "hash_ids"
    ignored: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())

    def __len__(self) -> int:
        return len(self.line)

    def keep(self, rows: np.ndarray) -> Columns:
        """Return the rows where the mask holds, or those at the given indices in that order."""
        if rows.dtype == bool:
            if rows.all():
                return self
            rows = np.flatnonzero(rows)
        kept = Columns(**{**self.__dict__})
        kept.line, kept.time = self.line[rows], self.time[rows]
        kept.prompt_tok, kept.output_tok = self.prompt_tok[rows], self.output_tok[rows]
        if self.session is not None:
            kept.session = [self.session[i] for i in rows]
        if self.id_ptr is not None and self.ids is not None:
            kept.id_ptr, kept.ids = gather(self.id_ptr, self.ids, rows)
        return kept
