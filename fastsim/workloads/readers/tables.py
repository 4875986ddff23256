"""CSV traces: one row a request, columns found by name."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass

import numpy as np

from fastsim.errors import InputError
from fastsim.workloads.readers import fields
from fastsim.workloads.readers.clock import DATE
from fastsim.workloads.readers.columns import MAX_TOK, UNSTATED, Columns, Complaints, Phrase, listed
from fastsim.workloads.readers.options import ReadOptions
from fastsim.workloads.readers.source import Source

_DATES = re.compile(r"(?:\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d{1,9})?\n)+", re.ASCII)


@dataclass(frozen=True)
class Table:
    """Names of a CSV format's columns.

    Parameters
    ----------
    time, prompt, output : str
    unit : str
        Unit of the times: "s", "ms", "us", "ns" or `DATE`.
    session : str
        Column with session names, empty if there is none; it may be missing in a file.
    request_id : str
        Column whose values should all differ, empty if there is none.
    group, prefix, whole : str
        Columns with the name of a group that shares a prefix, the tokens of that, which `prompt` leaves out,
        and the tokens of both together; empty if there are none.
    note : str
        What a user should know about reading this format.
    """

    time: str
    prompt: str
    output: str
    unit: str
    session: str = ""
    request_id: str = ""
    group: str = ""
    prefix: str = ""
    whole: str = ""
    note: str = ""

    @property
    def required(self) -> tuple[str, str, str]:
        """The columns that make a row a request; a file without times or outputs needs them stated."""
        return self.time, self.prompt, self.output

    @property
    def read_columns(self) -> tuple[str, ...]:
        """All columns that play a part."""
        return (*self.required, self.session, self.request_id, self.group, self.prefix, self.whole)

    def read(self, source: Source, complaints: Complaints, options: ReadOptions) -> Columns:
        """Read the columns at once if nothing is odd about them, else row by row to find what is."""
        columns = _fast(source.data, self)
        if columns is None:
            columns = _careful(source.data, self, complaints)
        columns.time_column, columns.prompt_column, columns.output_column = self.required
        columns.notes = (*columns.notes, *((self.note,) if self.note else ()))
        return columns


def header(data: bytes) -> list[str]:
    """Return the names in the first line, as far as it is one of a CSV file."""
    first = data.lstrip().split(b"\n", 1)[0]
    try:
        return [name.strip() for name in next(csv.reader([first.decode("utf-8", "replace")]))]
    except (csv.Error, StopIteration):
        return []


def _fast(data: bytes, table: Table) -> Columns | None:
    """Return the columns, or None if any row or value needs a closer look."""
    if not data.isascii() or b'"' in data or b"_" in data.split(b"\n", 1)[-1]:
        return None  # quotation marks may hide line breaks; Python takes 1_000 and other digits for numbers
    try:
        rows = list(csv.reader(io.StringIO(data.decode("ascii"), newline="")))
    except csv.Error:
        return None
    names = [name.strip() for name in rows[0]]
    if set(map(len, rows)) != {len(names)} or len(rows) < 2 or not set(table.required) <= set(names):
        return None
    column = dict(zip(names, zip(*rows[1:], strict=True), strict=True))
    if len(column) < len(names) or any(column.get(table.group, ())):
        return None
    if len(set(column.get(table.request_id, range(1, len(rows))))) < len(rows) - 1:
        return None
    time = _dates(column[table.time]) if table.unit == DATE else _times(column[table.time])
    prompt, output = _counts(column[table.prompt]), _counts(column[table.output])
    if time is None or prompt is None or output is None:
        return None
    columns = Columns(np.arange(2, len(rows) + 1), time, prompt, output)
    if table.session in column:
        columns.session = [name.strip() for name in column[table.session]]
    columns.ignored = _ignored(names, table)
    return columns


def _ignored(names: list[str], table: Table) -> tuple[str, ...]:
    return tuple(name for name in names if name not in table.read_columns)


def _times(texts: tuple[str, ...]) -> np.ndarray | None:
    try:
        whole = all(map(str.isdigit, texts))
        time = np.array(list(map(int if whole else float, texts)))
    except ValueError:
        return None
    if time.dtype.kind not in "if" or not ((time >= 0) & (time < fields.MAX_TIME)).all():
        return None
    return time


def _counts(texts: tuple[str, ...]) -> np.ndarray | None:
    if not all(map(str.isdigit, texts)) or max(map(len, texts)) > len(str(MAX_TOK)):
        return None
    values = np.array(list(map(int, texts)))
    return values if (values <= MAX_TOK).all() else None


def _dates(texts: tuple[str, ...]) -> np.ndarray | None:
    """Return nanoseconds since 1970 where all dates are in UTC or all are without zone."""
    zone = next((z for z in ("+00:00", "Z") if texts[0].endswith(z)), "")
    if not all(text.endswith(zone) for text in texts):
        return None
    bare = [text.removesuffix(zone) for text in texts]
    # NumPy would take more than this: zones, with a warning, dates without time, words like "today".
    if not _DATES.fullmatch("\n".join(bare) + "\n"):
        return None
    try:
        ns = np.array(bare, dtype="datetime64[ns]").astype(np.int64)
    except ValueError:  # no such day
        return None
    return ns if (ns >= 0).all() else None


def _careful(data: bytes, table: Table, complaints: Complaints) -> Columns:
    reader = csv.reader(io.StringIO(_text(data, complaints), newline=""))
    names: list[str] | None = None
    rows: list[tuple] = []
    check = _RowCheck(table, complaints)
    cut = not data.endswith((b"\n", b"\r"))
    while True:
        start = reader.line_num + 1
        try:
            cells = next(reader, None)
        except csv.Error as error:
            complaints.row(start, "", Phrase("what stands there"), f"must be a line of a CSV file; {error}")
            continue
        if cells is None:
            break
        if not any(map(str.strip, cells)):
            continue
        if names is None:
            names = _names(cells, table, complaints.file, start)
        elif len(cells) != len(names):
            if cut and rows and len(cells) < len(names) and next(reader, None) is None:
                complaints.cut_short(start)
                break
            cell_count = Phrase(f"a row of {len(cells)} values")
            complaints.row(start, "", cell_count, f"must have {len(names)} as the header has")
        elif (row := check.values(start, dict(zip(names, map(str.strip, cells), strict=True)))) is not None:
            rows.append(row)
    columns = _columns(rows, names or [], table)
    columns.notes = check.notes()
    return columns


def _columns(rows: list[tuple], names: list[str], table: Table) -> Columns:
    line, time, prompt, output, session, group, prefix = zip(*rows, strict=True) if rows else ((),) * 7
    columns = Columns(
        np.array(line, dtype=np.int64),
        np.array(time),
        np.array(prompt, dtype=np.int64),
        np.array(output, dtype=np.int64),
        session=list(session) if table.session in names else None,
        untimed=table.time not in names,
        there=f"the header has {listed(names)}; ",
        ignored=_ignored(names, table),
    )
    if any(group):
        columns.prefix = (list(group), np.array(prefix, dtype=np.int64))
    return columns


def _text(data: bytes, complaints: Complaints) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        if not complaints.skip_bad:
            where = f"{complaints.file}, line {line}"
            raise InputError(
                f"{where}: byte {data[error.start]:#04x} is not allowed; it must be UTF-8"
            ) from None
        return data.decode("utf-8", "replace")


def _names(cells: list[str], table: Table, file: str, line: int) -> list[str]:
    """Return the header's names, which must hold the prompt's and none twice."""
    names = [cell.strip() for cell in cells]
    if table.prompt not in names:
        raise InputError(
            f"{file}, line {line}: column {table.prompt!r} is missing; the header has {listed(names)}"
        )
    twice = [name for name in table.read_columns if name and names.count(name) > 1]
    if twice:
        raise InputError(f"{file}, line {line}: column {twice[0]!r} stands twice in the header")
    return names


class _RowCheck:
    """Checks one row after the other; what must agree between rows is kept here."""

    def __init__(self, table: Table, complaints: Complaints) -> None:
        self.table = table
        self.complaints = complaints
        self.zoned: bool | None = None
        self.ids: set[str] = set()
        self.repeated: list[int] = []  # lines whose request id stood before
        self.other_sums: list[int] = []  # lines whose whole prompt is not prefix and rest

    def values(self, line: int, row: dict[str, str]) -> tuple | None:
        """Return (line, time, prompt, output, session, group, prefix) of a row, or None after a complaint."""
        table, column = self.table, self.table.time
        try:
            time = self._time(row[column]) if column in row else 0
            column = table.prompt
            prompt = fields.count(fields.number(row[column]))
            column = table.output
            output = fields.count(fields.number(row[column])) if column in row else UNSTATED
            group, prefix = row.get(table.group, ""), 0
            column = table.prefix
            if group and row.get(column):
                prefix = fields.count(fields.number(row[column]))
        except fields.Bad as bad:
            self.complaints.row(line, column, row[column], str(bad))
            return None
        if prompt:
            prompt += prefix
        self._look(line, row, prompt)
        return line, time, prompt, output, row.get(table.session, ""), group, prefix

    def _time(self, text: str) -> int | float:
        if self.table.unit != DATE:
            return fields.time(fields.number(text))
        ns, zoned = fields.date(text)
        if self.zoned is None:
            self.zoned = zoned
        if zoned != self.zoned:
            raise fields.Bad(
                f"must be {'with' if self.zoned else 'without'} a time zone like the rows before"
            )
        return ns

    def _look(self, line: int, row: dict[str, str], prompt: int) -> None:
        """Keep in mind what is worth a word of warning."""
        name = row.get(self.table.request_id)
        if name:
            self.repeated += [line] if name in self.ids else []
            self.ids.add(name)
        whole = row.get(self.table.whole)
        self.other_sums += [line] if whole and whole not in ("0", str(prompt)) else []

    def notes(self) -> tuple[str, ...]:
        """Words of warning on all rows so far."""
        table = self.table
        notes = []
        if self.repeated:
            notes.append(
                f"warning: rows whose {table.request_id} stood before: {len(self.repeated):,} (first: line "
                f"{self.repeated[0]}); all are kept"
            )
        if self.other_sums:
            notes.append(
                f"warning: rows whose {table.whole} is not {table.prompt} and {table.prefix} together: "
                f"{len(self.other_sums):,} (first: line {self.other_sums[0]}); the sum is taken"
            )
        return tuple(notes)
