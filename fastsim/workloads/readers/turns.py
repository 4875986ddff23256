"""Sessions of a trace: turns that wait for answers, and prompts that hold the turns before them."""

from __future__ import annotations

import numpy as np

from fastsim.errors import InputError
from fastsim.workloads.readers.columns import MAX_TOK, Columns, Complaints
from fastsim.workloads.readers.paths import Paths


def with_waits(columns: Columns) -> Columns:
    """Turn times after answers into the times at which turns would come if answers took none."""
    columns.follows = np.full(len(columns), -1, dtype=np.int64)
    columns.think = np.zeros_like(columns.time)
    if columns.waits is None or not columns.waits.any():
        return columns
    assert columns.session is not None
    time = columns.time.copy()
    last: dict[str, int] = {}
    for i, name in enumerate(columns.session):
        if columns.waits[i]:
            columns.follows[i] = last[name]
            columns.think[i] = columns.time[i]
            time[i] = time[last[name]] + columns.time[i]
        if name:
            last[name] = i
    columns.time = time
    said = f"turns that come a delay after the answer before them (a closed loop): {columns.waits.sum():,}"
    columns.notes = (*columns.notes, said)
    return columns


def previous_turns(columns: Columns) -> np.ndarray:
    """Return the row before each in its session, by time, ties in file order; -1 where there is none."""
    before = np.full(len(columns), -1, dtype=np.int64)
    last: dict[str, int] = {}
    names = columns.session or []
    for i in np.argsort(columns.time, kind="stable").tolist() if names else ():
        if names[i]:
            before[i] = last.get(names[i], -1)
            last[names[i]] = i
    return before


def add_history(columns: Columns, before: np.ndarray, complaints: Complaints) -> None:
    """Make prompts that are given as what a turn adds into whole ones: all before, its answers, and that."""
    prompt = columns.prompt_tok.copy()
    for i in np.argsort(columns.time, kind="stable").tolist():
        if before[i] >= 0:
            prompt[i] += prompt[before[i]] + columns.output_tok[before[i]]
            if prompt[i] > MAX_TOK:
                raise InputError(
                    f"{complaints.file}, line {columns.line[i]}: the conversation so far has {prompt[i]:,} "
                    f"tokens; it must have at most {MAX_TOK:,}"
                )
    columns.prompt_tok = prompt
    columns.notes = (*columns.notes, f"{columns.prompt_column} is what a turn adds to its session, as stated")


def conversations(columns: Columns, before: np.ndarray, rows: np.ndarray) -> Paths:
    """Return the symbols of rows whose prompts start with the turn before and its answer.

    A prompt too short for that starts a conversation of its own, which is noted.

    Parameters
    ----------
    columns : Columns
        With times and whole prompts.
    before : ndarray of int64, shape (n,)
        The row before each in its session, or -1.
    rows : ndarray of bool, shape (n,)
        The rows to do this for.
    """
    prompt, output = columns.prompt_tok.tolist(), columns.output_tok.tolist()
    symbol_tok: list[int] = []
    answer = [-1] * len(prompt)
    path: list[list[int]] = [[] for _ in prompt]
    short: list[int] = []

    def new(tokens: int) -> int:
        symbol_tok.append(tokens)
        return len(symbol_tok) - 1

    for i in np.argsort(columns.time, kind="stable").tolist():
        if not rows[i]:
            continue
        last = int(before[i])
        added = prompt[i] - prompt[last] - output[last] if last >= 0 else -1
        if added < 0:
            short += [i] if last >= 0 else []
            path[i] = [new(prompt[i])]
            continue
        if answer[last] < 0:
            answer[last] = new(output[last])
        path[i] = [*path[last], answer[last], *([new(added)] if added else [])]
    if short:
        said = (
            f"turns shorter than the turn before and its answer: {len(short):,} (first: line "
            f"{columns.line[min(short)]}); each starts a conversation of its own"
        )
        columns.notes = (*columns.notes, said)
    return Paths.of(path, symbol_tok, answer)
