"""From the bytes of a trace file to a workload: format, times, blocks, order, summary."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fastsim.errors import InputError, nearest
from fastsim.workloads.readers import blocks as block
from fastsim.workloads.readers import clock as clocks
from fastsim.workloads.readers.columns import Columns, Complaints, printable
from fastsim.workloads.readers.registry import Format, choose_format
from fastsim.workloads.readers.source import unpack
from fastsim.workloads.summary import Finding, WorkloadSummary
from fastsim.workloads.workload import Workload


@dataclass(frozen=True)
class ReadOptions:
    """What a user may state about a trace file.

    Parameters
    ----------
    format : str, optional
        A key of `FORMATS`; recognised from the contents otherwise.
    block_tok : int, optional
        Tokens a hash id stands for.
    time_unit : {"s", "ms", "us", "ns"}, optional
    skip_bad : bool
        Drop and count bad rows instead of refusing the file.
    """

    format: str | None = None
    block_tok: int | None = None
    time_unit: str | None = None
    skip_bad: bool = False

    def __post_init__(self) -> None:
        size = self.block_tok
        if size is not None and (
            isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 1
        ):
            raise InputError(
                f"block_tok: {size!r} is not allowed; it must be a whole number of 1 or more tokens"
            )
        unit = self.time_unit
        if unit is not None and unit not in clocks.PER_SECOND:
            raise InputError(f"time_unit: {unit!r} is not allowed; {nearest(str(unit), clocks.PER_SECOND)}")


def name_of(path: str) -> str:
    """Return what a trace is called: its file's name without endings."""
    file = Path(path).name
    return file.split(".")[0] or file


def read_trace(path: str, raw: bytes, options: ReadOptions) -> Workload:
    """Return the workload a trace file describes, as it stands in the file.

    Parameters
    ----------
    path : str
        Where it comes from, for messages and the summary.
    raw : bytes
        Its contents, perhaps compressed.
    options : ReadOptions

    Raises
    ------
    InputError
        Naming file, line, column and value of what is wrong.
    """
    source = unpack(path, raw, skip_bad=options.skip_bad)
    entry, format_why = choose_format(source, options.format)
    _check_applicable(entry, options)
    complaints = Complaints(path, options.skip_bad)
    columns = entry.read(source, complaints)
    rows_read = len(columns) + complaints.count
    columns, clock = _in_seconds(columns, entry, options, complaints)
    columns, symbol_tok, blocks = _with_symbols(columns, options, complaints)
    columns, moved = _in_order(columns)
    assert columns.id_ptr is not None
    assert columns.ids is not None
    return Workload(
        name=name_of(path),
        arrival_s=columns.time,
        prompt_tok=columns.prompt_tok,
        output_tok=columns.output_tok,
        symbol_ptr=columns.id_ptr,
        symbols=columns.ids,
        symbol_tok=symbol_tok,
        session=_session_numbers(columns.session, len(columns)),
        summary=WorkloadSummary(
            source=path,
            format=entry.name,
            format_why=format_why,
            rows_read=rows_read,
            dropped=complaints.findings(),
            repaired=(*source.repaired, *moved),
            time_unit=clock.unit,
            time_unit_why=clock.reason,
            block_tok=blocks.block_tok if blocks else None,
            block_why=blocks.why if blocks else "no hash ids, so prompts share nothing",
            ignored_columns=tuple(map(printable, columns.ignored)),
            notes=columns.notes,
        ),
    )


def _check_applicable(entry: Format, options: ReadOptions) -> None:
    if options.time_unit is not None and entry.unit == clocks.DATE:
        raise InputError(
            f"time_unit: {options.time_unit!r} does not apply to format {entry.name}, which has dates"
        )
    if options.block_tok is not None and not entry.has_ids:
        raise InputError(
            f"block_tok: {options.block_tok} does not apply to format {entry.name}, which has no hash ids"
        )


def _some(columns: Columns, complaints: Complaints) -> Columns:
    """Return the columns if a row is left."""
    if len(columns):
        return columns
    dropped = "; ".join(map(str, complaints.findings()))
    raise InputError(
        f"{complaints.file}: there is no request in the file" + (f", dropped: {dropped}" if dropped else "")
    )


def _in_seconds(
    columns: Columns, entry: Format, options: ReadOptions, complaints: Complaints
) -> tuple[Columns, clocks.Clock]:
    """Return the columns with times in seconds, and how they were read."""
    columns = _some(columns, complaints)
    columns = clocks.drop_mixed_times(columns, options.time_unit or entry.unit, complaints)
    clock = clocks.read_clock(columns.time, entry.unit, options.time_unit)
    written, columns.time = columns.time, clocks.to_seconds(columns.time, clock)
    late = columns.time > clocks.MAX_SPAN_S
    reason = f"must lie within {clocks.MAX_SPAN_S:.0e} s of the start"
    complaints.rows(late, columns.line, columns.time_column, written, reason)
    return _some(columns.keep(~late), complaints), clock


def _with_symbols(
    columns: Columns, options: ReadOptions, complaints: Complaints
) -> tuple[Columns, np.ndarray, block.Blocks | None]:
    """Return the columns with symbols for ids, the tokens of each symbol, and the block size."""
    if columns.id_ptr is None:
        columns.id_ptr = np.zeros(len(columns) + 1, dtype=np.int64)
        columns.ids = np.empty(0, dtype=np.int64)
        return columns, np.empty(0, dtype=np.int64), None
    blocks = block.fit_blocks(columns.prompt_tok, np.diff(columns.id_ptr), options.block_tok)
    columns = _some(block.drop_misfits(columns, blocks, complaints), complaints)
    columns.ids, symbol_tok = block.to_symbols(columns, blocks)
    return columns, symbol_tok, blocks


def _in_order(columns: Columns) -> tuple[Columns, tuple[Finding, ...]]:
    """Return the columns in order of time, ties in file order, and a word on the rows that were moved."""
    early = columns.time < np.maximum.accumulate(columns.time)
    if not early.any():
        return columns, ()
    first = f"line {columns.line[np.argmax(early)]}"
    moved = Finding(
        "sorted by time, it stood after a later row; ties keep file order", int(early.sum()), first
    )
    return columns.keep(np.argsort(columns.time, kind="stable")), (moved,)


def _session_numbers(names: list[str] | None, n: int) -> np.ndarray:
    """Number sessions as they appear; -1 where there is no name."""
    number: dict[str, int] = {}
    each = (number.setdefault(name, len(number)) if name else -1 for name in names or [""] * n)
    return np.fromiter(each, dtype=np.int64, count=n)
