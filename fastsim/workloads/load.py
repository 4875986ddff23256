"""Load a trace: read it, or find it read already, and take what is asked for."""

from __future__ import annotations

from dataclasses import fields, replace
from os import PathLike, fspath
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta

from fastsim.errors import InputError
from fastsim.typed import Seconds, Seed, checked
from fastsim.workloads import cache as disk
from fastsim.workloads import transforms
from fastsim.workloads.readers.clock import WHOLE_MS
from fastsim.workloads.readers.options import ReadOptions
from fastsim.workloads.readers.read import name_of, read_trace
from fastsim.workloads.readers.registry import choose_format
from fastsim.workloads.readers.source import MAX_TEXT_GB, file_bytes, unpack
from fastsim.workloads.summary import WorkloadSummary
from fastsim.workloads.workload import BlockTok, Workload

# Options that say how a file is to be read, apart from what is made of what was read.
STATED = tuple(field.name for field in fields(ReadOptions) if field.name != "draws")
Count = Annotated[int, Meta(ge=1, le=10**12)]
TextGb = Annotated[float, Meta(gt=0.0, le=1000.0)]
RateScale = Annotated[float, Meta(gt=0.0, le=1e9)]
_ARRAYS = (
    "arrival_s",
    "prompt_tok",
    "output_tok",
    "symbol_ptr",
    "symbols",
    "symbol_tok",
    "shared_symbols",
    "answer",
    "session",
    "priority",
    "follows",
    "think_s",
)


@checked
def load(
    path: str | PathLike[str],
    format: str | None = None,
    *,
    block_tok: BlockTok | None = None,
    time_unit: str | None = None,
    skip_bad: bool = False,
    zero_output: Literal["drop", "prefill", "refuse"] = "drop",
    output_tok: int | str | None = None,
    arrivals: str | None = None,
    turns: Literal["separate", "growing", "added"] = "separate",
    think_s: Seconds = 0.0,
    chars_per_tok: float | None = None,
    max_text_gb: TextGb = MAX_TEXT_GB,
    start_s: Seconds | None = None,
    end_s: Seconds | None = None,
    rate_scale: RateScale = 1.0,
    rate_mode: Literal["compress", "thin"] = "compress",
    repeat: Count = 1,
    seed: Seed = 0,
    replicate: Seed = 0,
    shuffle_sessions: bool = False,
    max_tok: Count | None = None,
    limit: Count | None = None,
    cache: bool = True,
) -> Workload:
    """Load a request trace. With the defaults it is the trace as it stands in the file.

    What is asked for is done in this order: length, window, repeat, shuffle, rate, limit.

    Parameters
    ----------
    path : str or path
        Text, gzip of it, or Parquet, told by content.
    format : str, optional
        A key of `FORMATS`; recognised from the contents otherwise.
    block_tok : int, optional
        Tokens a hash id stands for; what the file or its name says otherwise, or guessed and explained in the
        summary.
    time_unit : {"s", "ms", "us", "ns"}, optional
        Unit of the times; the format's published one otherwise. Times that are not as published (Mooncake's
        with fractions of a ms) are refused without it.
    skip_bad : bool
        Drop rows that are not allowed, and count them in the summary, instead of refusing the file. A cluster
        then leaves out requests that can never fit it, too, where a sweep or a replay serves the trace.
    zero_output : {"drop", "prefill", "refuse"}
        What becomes of rows with an answer of 0 tokens, the failures of the system that was recorded: left
        out and counted, kept as prefills (1 token, which the prefill yields), or refused. Prompts of 0 tokens
        are left out and counted, or refused.
    output_tok : int or str, optional
        Tokens of answers that the file does not tell: a number, "lognormal(mean, cv)" or "normal(mean, cv)".
    arrivals : str, optional
        When requests, and sessions as wholes, start, for files without times or in place of theirs:
        "poisson(rate)", "gamma(rate, cv)" or "deterministic(rate)", in starts per second.
    turns : {"separate", "growing", "added"}
        What prompts of a session without hash ids share: nothing; or each is the conversation so far, so that
        it starts with the prompt before and its answer; or the same, the file giving only what a turn adds.
    think_s : float
        Seconds from an answer to the next turn in conversations that have no times of their own.
    max_text_gb : float
        Refuse a gzip file that expands to more gigabytes than this.
    chars_per_tok : float, optional
        Characters a token, for texts without token counts.
    start_s, end_s : float, optional
        Keep requests that arrive in [start_s, end_s) of the trace's time; `start_s` becomes 0.
    rate_scale : float
        Factor on the rate.
    rate_mode : {"compress", "thin"}
        Divide arrival times by the factor, or (factors up to 1) keep requests with that probability.
    repeat : int
        Play the trace so many times back to back; repetitions share no tokens with each other.
    seed, replicate : int
        Choose the random numbers of thinning, shuffling, arrivals and lengths.
    shuffle_sessions : bool
        Let whole sessions swap their start times, for replications of one trace.
    max_tok : int, optional
        Leave out requests with more tokens than this, prompt and output together: those that fit no replica.
    limit : int, optional
        Keep at most so many requests, the first to arrive.
    cache : bool
        Keep the parsed trace, and derived sessions, on disk under a hash of the bytes: parsed once.

    Raises
    ------
    InputError
        Naming file, line, column and value of what is wrong, or the parameter.
    """
    options = ReadOptions(
        format,
        block_tok,
        time_unit,
        skip_bad,
        zero_output,
        output_tok,
        arrivals,
        turns,
        think_s,
        chars_per_tok,
        max_text_gb,
    )
    if options.needs_draws:  # else what is read is the same for all seeds, and kept once
        options = replace(options, draws=(int(seed), int(replicate)))
    _check_scale(rate_scale, rate_mode)
    workload = _parsed(fspath(path), options, cache)
    if max_tok is not None:
        workload = _short_enough(workload, max_tok)
    if start_s is not None or end_s is not None:
        workload = workload.window(start_s, end_s)
    workload = transforms.repeat(workload, repeat)
    if shuffle_sessions:
        rng = _stream(seed, replicate, "sessions")
        workload = transforms.shuffle_sessions(workload, rng, cached=cache)
    if rate_scale != 1.0 and rate_mode == "compress":
        workload = transforms.compress_time(workload, rate_scale)
    elif rate_scale != 1.0:
        workload = transforms.thin(workload, rate_scale, _stream(seed, replicate, "thinning"))
    if limit is not None and limit < len(workload):
        workload = workload.take(limit, f"the first {limit:,} requests of {len(workload):,}")
    return workload


def load_times(path: str | PathLike[str]) -> np.ndarray:
    """Load a trace's arrival times for their pattern, whose unit is not asked for where it is not clear.

    Returns
    -------
    ndarray of float64, shape (n,)
    """
    raw = file_bytes(fspath(path))
    entry, _ = choose_format(unpack(fspath(path), raw, skip_bad=False), None)
    return load(path, time_unit="ms" if entry.unit == WHOLE_MS else None).arrival_s


def _short_enough(workload: Workload, max_tok: int) -> Workload:
    kept = workload.prompt_tok + workload.output_tok <= max_tok
    if not kept.any():
        raise InputError(
            f"max_tok: {max_tok:,} is not allowed; it must leave a request, and the shortest has more"
        )
    note = f"left out {np.count_nonzero(~kept):,} requests of more than {max_tok:,} tokens"
    return workload if kept.all() else workload.take(kept, note)


def _check_scale(rate_scale: float, rate_mode: str) -> None:
    if rate_mode == "thin" and rate_scale > 1:
        raise InputError(
            f"rate_scale: {rate_scale:g} is not allowed with thinning, which only lowers the rate"
        )


def _stream(seed: int, replicate: int, name: str) -> np.random.Generator:
    from fastsim.rng import generator  # brings numba in, which reading a trace as it is can do without

    return generator(seed, replicate, name)


def _parsed(path: str, options: ReadOptions, cached: bool) -> Workload:
    """Return the trace as it stands in the file, from the disk cache where it is there."""
    raw = file_bytes(path)
    if not cached:
        return read_trace(path, raw, options)
    key = disk.key_of("trace", raw, repr(options))
    workload = _unpacked(path, disk.fetch(key))
    if workload is None:
        workload = read_trace(path, raw, options)
        disk.store(key, _packed(workload))
    return workload


def _packed(workload: Workload) -> dict[str, np.ndarray]:
    arrays = {name: getattr(workload, name) for name in _ARRAYS}
    words = msgspec.json.encode(workload.summary)
    return {**arrays, "summary": np.frombuffer(words, dtype=np.uint8)}


def _unpacked(path: str, arrays: dict[str, Any] | None) -> Workload | None:
    """Return the workload kept in these arrays, under its file's name of today; None if they are not one."""
    if arrays is None:
        return None
    try:
        summary = msgspec.json.decode(arrays.pop("summary").tobytes(), type=WorkloadSummary)
        summary = msgspec.structs.replace(summary, source=path)
        return Workload(name=name_of(path), summary=summary, **arrays)
    except (KeyError, TypeError, msgspec.DecodeError, InputError):
        return None
