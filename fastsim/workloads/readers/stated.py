"""What a file leaves out and a user states: answers of 0 tokens, lengths of answers, times of arrival."""

from __future__ import annotations

import numpy as np

from fastsim.errors import InputError
from fastsim.workloads.readers.columns import UNSTATED, Columns, Complaints, Phrase
from fastsim.workloads.readers.options import ARRIVALS, LENGTHS, ReadOptions, called
from fastsim.workloads.summary import Finding

_WHOLE = "must be a whole number from 1 to 1,000,000,000"


def without_empty(columns: Columns, options: ReadOptions, complaints: Complaints) -> Columns:
    """Apply the rule for prompts and answers of 0 tokens.

    A prompt of 0 tokens is left out, whatever is done with answers. An answer of 0 tokens is a failure of the
    system that was recorded: left out and counted, or kept as a prefill, whose one token the engine yields
    at its end without a step of its own, or refused.
    """
    no_prompt, no_output = columns.prompt_tok == 0, columns.output_tok == 0
    if not (no_prompt | no_output).any():
        return columns
    if options.zero_output == "refuse":
        complaints.rows(no_prompt, columns.line, columns.prompt_column, columns.prompt_tok, _WHOLE)
        bad = no_output & ~no_prompt
        complaints.rows(bad, columns.line, columns.output_column, columns.output_tok, _WHOLE)
        return columns.keep(~no_prompt & ~no_output)
    complaints.leave_out(no_prompt, columns.line, f"{columns.prompt_column} of 0, which is no request")
    failed = no_output & ~no_prompt
    if options.zero_output == "prefill":
        columns.output_tok = np.where(failed, 1, columns.output_tok)
        if failed.any():
            reason = f"{columns.output_column} of 0: kept as prefills, whose one token comes with them"
            first = f"line {columns.line[np.argmax(failed)]}"
            columns.repaired = (*columns.repaired, Finding(reason, int(failed.sum()), first))
        return columns.keep(~no_prompt)
    reason = f"{columns.output_column} of 0, taken for failures (zero_output = 'prefill' keeps them)"
    complaints.leave_out(failed, columns.line, reason)
    return columns.keep(~no_prompt & ~failed)


def with_outputs(columns: Columns, options: ReadOptions, complaints: Complaints) -> Columns:
    """Put the length stated where the file has none."""
    missing = columns.output_tok == UNSTATED
    column = columns.output_column
    if not missing.any():
        if options.output_tok is not None:
            raise InputError(
                f"output_tok: {options.output_tok!r} does not apply to {complaints.file}: "
                f"no row lacks {column}"
            )
        return columns
    if options.output_tok is not None:
        count = int(missing.sum())
        columns.output_tok = columns.output_tok.copy()
        columns.output_tok[missing] = _lengths(options, count)
        said = f"{column} is missing in {count:,} rows and taken as {options.output_tok}, as stated"
        columns.notes = (*columns.notes, said)
        return columns
    remedy = 'state output_tok, such as 200 or "lognormal(200, 0.8)"'
    if missing.all():
        raise InputError(f"{complaints.file}: column {column!r} is missing; {columns.there}{remedy}")
    without = [Phrase("a row without it")] * len(columns)
    complaints.rows(missing, columns.line, column, without, f"must be there in every row; or {remedy}")
    return columns.keep(~missing)


def _lengths(options: ReadOptions, count: int) -> np.ndarray | int:
    if not isinstance(options.output_tok, str):
        return int(options.output_tok or 0)
    from fastsim.workloads.traffic import Sized, lengths

    law, (mean, cv) = called("output_tok", options.output_tok, LENGTHS)
    spec = Sized(length_law=law)  # pyright: ignore[reportArgumentType]
    return lengths(spec, _stream(options, "outputs"), count, mean, cv)


def with_arrivals(columns: Columns, options: ReadOptions, complaints: Complaints) -> Columns:
    """Draw when sessions, and requests without one, start; the rest of a session keeps its distance.

    Raises
    ------
    InputError
        If the file has no times and no arrival process is stated.
    """
    if options.arrivals is None:
        if columns.untimed:
            raise InputError(
                f"{complaints.file}: column {columns.time_column!r} is missing; {columns.there}"
                f'state an arrival process, such as arrivals = "poisson(2)" (requests/s)'
            )
        return columns
    from fastsim.workloads.arrivals import arrival_times

    law, (rate_rps, *cv) = called("arrivals", options.arrivals, ARRIVALS)
    unit = _starts(columns)
    opens = np.flatnonzero(unit == np.arange(len(unit)))
    drawn = arrival_times(
        _stream(options, "arrivals"), law, rate_rps, cv=cv[0] if cv else 1.0, requests=len(opens)
    )
    start_s = np.zeros(len(unit))
    start_s[opens] = drawn
    columns.time = start_s[unit] + np.maximum(columns.time - columns.time[unit], 0.0)
    what = "sessions" if len(opens) < len(unit) else "requests"
    columns.notes = (*columns.notes, f"{len(opens):,} {what} start as stated: {options.arrivals}")
    return columns


def _starts(columns: Columns) -> np.ndarray:
    """Return, for every row, the row that its session starts with; its own where it has none."""
    start = np.arange(len(columns))
    first: dict[str, int] = {}
    names = columns.session or []
    for i in np.argsort(columns.time, kind="stable").tolist() if names else ():
        start[i] = first.setdefault(names[i], i) if names[i] else i
    return start


def _stream(options: ReadOptions, name: str) -> np.random.Generator:
    from fastsim.rng import generator

    seed, replicate = options.draws or (0, 0)
    return generator(seed, replicate, name)
