"""What a format's reader hands over: columns of numbers, the lines they stood in, and complaints."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fastsim.errors import InputError
from fastsim.workloads.csr import gather
from fastsim.workloads.summary import Finding
from fastsim.workloads.workload import MAX_TOK as MAX_TOK

UNSTATED = -1  # tokens of an answer that the file does not tell
_MOST_SHOWN, _MOST_LISTED = 60, 200  # characters of a file in a message


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

    def leave_out(self, rows: np.ndarray, lines: np.ndarray, rule: str) -> None:
        """Count rows that are left out by a rule, whether bad rows are skipped or not.

        Parameters
        ----------
        rows : ndarray of bool, shape (n,)
        lines : ndarray of int64, shape (n,)
        rule : str
        """
        if rows.any():
            count, first = self._seen.get(rule, (0, f"line {lines[np.argmax(rows)]}"))
            self._seen[rule] = (count + int(rows.sum()), first)

    def cut_short(self, line: int) -> None:
        """Leave out the last line, which ends in the middle: what was written had been cut off there."""
        self._seen["the last line is cut short"] = (1, f"line {line}")

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
    """Return a value as a short piece of a sentence, all of it visible."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e16:
        value = int(value)  # most likely written so
    text = printable(value if isinstance(value, str) else str(value), _MOST_SHOWN)
    return f"'{text}'" if isinstance(value, str) and not isinstance(value, Phrase) else text


def printable(name: str, most: int = _MOST_LISTED) -> str:
    """Return a name that any terminal can show, cut short: what is no visible character becomes its code."""
    name = name[: most + 1]
    text = name if name.isprintable() else repr(name)[1:-1]
    text = text.replace("\ufffd", "?")  # stands for bytes that are no text
    return text if len(text) <= most else text[: most - 3] + "..."


def listed(names: Iterable[str]) -> str:
    """Return names of a file in a row, cut short."""
    return printable(", ".join(names))


@dataclass
class Columns:
    """Rows of a trace in file order, every value on its own already checked.

    Parameters
    ----------
    line : ndarray of int64, shape (n,)
        Line numbers in the file, from 1.
    time : ndarray of int64 or float64, shape (n,)
        Times as written; nanoseconds since 1970 where the file has dates.
    prompt_tok : ndarray of int64, shape (n,)
        0 to `MAX_TOK`.
    output_tok : ndarray of int64, shape (n,)
        0 to `MAX_TOK`, or `UNSTATED`.
    id_ptr, ids : ndarray of int64, optional
        Hash ids of each prompt's blocks in CSR form; None where the format has none.
    session : list of str, optional
        Session names, empty where unknown.
    untimed : bool
        The file does not say when requests and sessions start: times, in seconds, count from there.
    waits : ndarray of bool, shape (n,), optional
        Rows whose time counts from the answer to the row before in their session.
    grows : bool
        Sessions are conversations: a prompt starts with the turn before and its answer.
    prefix : tuple of (list of str, ndarray of int64), optional
        Each prompt's group, empty for none, and how many of its first tokens are its group's.
    block_tok : int, optional
        Tokens an id stands for, where the file says so.
    time_column, prompt_column, output_column, id_column : str
        Names for messages.
    there : str
        What the file has instead of what is missing, for messages.
    ignored : tuple of str
        Columns of the file that play no part.
    repaired : tuple of Finding
    notes : tuple of str
    follows, think : ndarray, shape (n,), optional
        The row whose answer each waits for, or -1, and for how long, in the unit of `time`; set by
        `turns.with_waits`.
    """

    line: np.ndarray
    time: np.ndarray
    prompt_tok: np.ndarray
    output_tok: np.ndarray
    id_ptr: np.ndarray | None = None
    ids: np.ndarray | None = None
    session: list[str] | None = None
    untimed: bool = False
    waits: np.ndarray | None = None
    grows: bool = False
    prefix: tuple[list[str], np.ndarray] | None = None
    block_tok: int | None = None
    time_column: str = "timestamp"
    prompt_column: str = "input_length"
    output_column: str = "output_length"
    id_column: str = "hash_ids"
    there: str = ""
    ignored: tuple[str, ...] = ()
    repaired: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    follows: np.ndarray | None = None
    think: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.line)

    def keep(self, rows: np.ndarray) -> Columns:
        """Return the rows where the mask holds, in their order.

        A row that waits for one that is left out waits for what that one waited for, so much longer.
        """
        if rows.all():
            return self
        where = np.flatnonzero(rows)
        kept = replace(self, line=self.line[rows])
        for name in ("time", "prompt_tok", "output_tok", "waits"):
            values = getattr(self, name)
            setattr(kept, name, None if values is None else values[rows])
        if self.follows is not None and self.think is not None:
            follows, think = self.follows.copy(), self.think.copy()
            while (lost := (follows >= 0) & ~rows[follows]).any():
                think[lost] += self.think[follows[lost]]
                follows[lost] = self.follows[follows[lost]]
            place = np.cumsum(rows) - 1
            kept.follows = np.where(follows >= 0, place[follows], -1)[rows]
            kept.think = np.where(follows >= 0, think, 0)[rows]
        if self.session is not None:
            kept.session = [self.session[i] for i in where]
        if self.prefix is not None:
            kept.prefix = ([self.prefix[0][i] for i in where], self.prefix[1][rows])
        if self.id_ptr is not None and self.ids is not None:
            kept.id_ptr, kept.ids = gather(self.id_ptr, self.ids, where)
        return kept
