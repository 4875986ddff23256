"""From the bytes of a trace file to a workload: format, times, blocks, order, summary."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np

from fastsim.errors import InputError
from fastsim.workloads.csr import gather
from fastsim.workloads.readers import blocks as block
from fastsim.workloads.readers import clock as clocks
from fastsim.workloads.readers import doubts
from fastsim.workloads.readers.columns import Columns, Complaints, printable
from fastsim.workloads.readers.options import ReadOptions
from fastsim.workloads.readers.paths import Paths, group_prefixes
from fastsim.workloads.readers.registry import Format, choose_format
from fastsim.workloads.readers.source import unpack
from fastsim.workloads.readers.stated import with_arrivals, with_outputs, without_empty
from fastsim.workloads.readers.turns import add_history, conversations, previous_turns, with_waits
from fastsim.workloads.summary import Finding, WorkloadSummary
from fastsim.workloads.workload import Workload

_BLOCK_IN_NAME = re.compile(r"(?:blksz|block)_?(\d{1,5})(?!\d)")


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
    source = unpack(path, raw, skip_bad=options.skip_bad, max_text_gb=options.max_text_gb)
    entry, format_why = choose_format(source, options.format)
    _check_applicable(entry, options)
    complaints = Complaints(path, options.skip_bad)
    columns = entry.read(source, complaints, options)
    rows_read = len(columns) + complaints.count
    columns = with_waits(_some(columns, complaints))
    columns = without_empty(columns, options, complaints)
    columns = with_outputs(_some(columns, complaints), options, complaints)
    columns, clock = _in_seconds(_some(columns, complaints), entry, options, complaints)
    columns = with_arrivals(columns, options, complaints)
    columns, paths, blocks, warnings = _with_symbols(columns, options, complaints)
    order, moved = _in_order(columns)
    arrival_s = columns.time[order]
    if options.arrivals is None:
        warnings += doubts.of_unit(clock.unit if clock else "", options.time_unit is not None, arrival_s)
        warnings += doubts.of_rate(arrival_s)
    notes = (*source.notes, *columns.notes, *warnings)
    return _workload(
        columns,
        paths,
        order,
        WorkloadSummary(
            source=path,
            format=entry.name,
            format_why=format_why,
            rows_read=rows_read,
            dropped=complaints.findings(),
            repaired=(*source.repaired, *columns.repaired, *moved),
            time_unit=clock.unit if clock else "",
            time_unit_why=clock.reason if clock else "",
            block_tok=blocks.block_tok if blocks else None,
            block_why=blocks.why if blocks else _why_no_blocks(columns, paths),
            ignored_columns=tuple(map(printable, columns.ignored)),
            notes=notes,
        ),
        name_of(path),
    )


def _workload(
    columns: Columns, paths: Paths, order: np.ndarray, summary: WorkloadSummary, name: str
) -> Workload:
    """Put rows in order and make the workload."""
    assert columns.follows is not None
    assert columns.think is not None
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    follows = columns.follows[order]
    ptr, symbols = gather(paths.ptr, paths.symbols, order)
    return Workload(
        name=name,
        arrival_s=columns.time[order],
        prompt_tok=columns.prompt_tok[order],
        output_tok=columns.output_tok[order],
        symbol_ptr=ptr,
        symbols=symbols,
        symbol_tok=paths.symbol_tok,
        answer=paths.answer[order],
        session=_session_numbers(columns.session, order),
        follows=np.where(follows >= 0, place[follows], -1),
        think_s=columns.think[order],
        summary=summary,
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
    if options.chars_per_tok is not None and not entry.has_texts:
        raise InputError(
            f"chars_per_tok: {options.chars_per_tok:g} does not apply to format {entry.name}, it has no texts"
        )
    if options.think_s and not entry.has_texts:
        raise InputError(
            f"think_s: {options.think_s:g} does not apply to format {entry.name}, which has its own times"
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
) -> tuple[Columns, clocks.Clock | None]:
    """Return the columns with times in seconds, if they have any, and how they were read."""
    if columns.untimed:
        return columns, None
    columns = clocks.drop_mixed_times(columns, options.time_unit or entry.unit, complaints)
    clock = clocks.read_clock(complaints.file, columns.time, entry.unit, options.time_unit)
    written, columns.time = columns.time, clocks.to_seconds(columns.time, clock)
    assert columns.think is not None
    columns.think = clocks.to_seconds(columns.think, replace(clock, unix=False))
    late = columns.time > clocks.MAX_SPAN_S
    reason = f"must lie within {clocks.MAX_SPAN_S:.0e} s of the start"
    complaints.rows(late, columns.line, columns.time_column, written, reason)
    return _some(columns.keep(~late), complaints), clock


def _with_symbols(
    columns: Columns, options: ReadOptions, complaints: Complaints
) -> tuple[Columns, Paths, block.Blocks | None, tuple[str, ...]]:
    """Return the columns with whole prompts, their symbols, the block size and words of warning."""
    grows = columns.grows or options.turns != "separate"
    if options.turns != "separate" and not any(columns.session or ()):
        raise InputError(
            f"turns: {options.turns!r} does not apply to {complaints.file}, which has no sessions"
        )
    if options.turns == "added":
        add_history(columns, previous_turns(columns), complaints)
    blocks, warnings = None, ()
    paths = Paths.none(len(columns))
    if columns.id_ptr is not None:
        columns, paths, blocks, warnings = _by_ids(columns, options, complaints)
    if columns.prefix is not None:
        paths = group_prefixes(*columns.prefix)
    if grows:
        free = np.diff(paths.ptr) == 0
        if columns.session is not None and columns.id_ptr is not None:
            free &= ~block.with_ids(columns)
        named = np.array([bool(name) for name in columns.session or ()], dtype=bool)
        if not (free & named).any() and options.turns == "growing":
            raise InputError(
                f"turns: 'growing' does not apply to {complaints.file}: its hash ids say what prompts share"
            )
        paths = paths.beside(conversations(columns, previous_turns(columns), free & named))
        said = "prompts of a session start with the turn before and its answer"
        columns.notes = (*columns.notes, said + (", as stated" if options.turns != "separate" else ""))
    elif any(columns.session or ()) and columns.id_ptr is None and columns.prefix is None:
        said = "sessions share no tokens; if they are conversations that grow, state turns = 'growing'"
        columns.notes = (*columns.notes, said)
    return columns, paths, blocks, warnings


def _by_ids(
    columns: Columns, options: ReadOptions, complaints: Complaints
) -> tuple[Columns, Paths, block.Blocks, tuple[str, ...]]:
    """Return the columns without misfits, the symbols of their ids, the block size and words of warning."""
    assert columns.id_ptr is not None
    size, who = options.block_tok, "stated by the user"
    if size is None:
        size, who = columns.block_tok, "as the file says"
    if size is None and (named := _BLOCK_IN_NAME.search(Path(complaints.file).name)):
        size, who = int(named.group(1)), "as the file's name says"
    fit = block.with_ids(columns)
    blocks = block.fit_blocks(columns.prompt_tok[fit], np.diff(columns.id_ptr)[fit], size, who)
    columns = _some(block.drop_misfits(columns, blocks, complaints), complaints)
    symbols, symbol_tok = block.to_symbols(columns, blocks)
    assert columns.id_ptr is not None
    warnings = doubts.of_ids(columns, blocks, symbols, symbol_tok)
    answer = np.full(len(columns), -1, dtype=np.int64)
    return columns, Paths(columns.id_ptr, symbols, symbol_tok, answer), blocks, warnings


def _why_no_blocks(columns: Columns, paths: Paths) -> str:
    if columns.prefix is not None and len(paths.symbols):
        return "no hash ids; prompts of one prefix_group share its first prefix_length tokens"
    return "no hash ids" if len(paths.symbols) else "no hash ids, so prompts share nothing"


def _in_order(columns: Columns) -> tuple[np.ndarray, tuple[Finding, ...]]:
    """Return the rows in order of time, ties in file order, and a word on the rows that were moved."""
    assert columns.follows is not None
    own_s = np.where(columns.follows < 0, columns.time, 0.0)
    early = (own_s < np.maximum.accumulate(own_s)) & (columns.follows < 0)
    order = np.argsort(columns.time, kind="stable")
    if not early.any():
        return order, ()
    first = f"line {columns.line[np.argmax(early)]}"
    moved = Finding(
        "sorted by time, it stood after a later row; ties keep file order", int(early.sum()), first
    )
    return order, (moved,)


def _session_numbers(names: list[str] | None, order: np.ndarray) -> np.ndarray:
    """Number sessions as they appear in that order; -1 where there is no name."""
    number: dict[str, int] = {}
    if names is None:
        return np.full(len(order), -1, dtype=np.int64)
    each = (number.setdefault(names[i], len(number)) if names[i] else -1 for i in order.tolist())
    return np.fromiter(each, dtype=np.int64, count=len(order))
