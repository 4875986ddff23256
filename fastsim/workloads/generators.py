"""Synthetic workloads, one function and one registry entry each.

What is asked and in which order comes from streams of their own, apart from the arrival times: the same
(seed, replicate) gives every policy the same requests, and another rate the same requests at other times.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta

from fastsim.errors import InputError, nearest
from fastsim.workloads.arrivals import arrival_times
from fastsim.workloads.params import check
from fastsim.workloads.summary import WorkloadSummary
from fastsim.workloads.workload import Workload

Stream = Callable[[str], np.random.Generator]

PositiveFloat = Annotated[float, Meta(gt=0)]
Cv = Annotated[float, Meta(ge=0, le=10, description="coefficient of variation")]
Tokens = Annotated[float, Meta(ge=1, le=1e8, description="mean, in tokens")]
Count = Annotated[int, Meta(ge=1)]

DEFAULT_DURATION_S = 600.0


class Traffic(msgspec.Struct, frozen=True, kw_only=True):
    """When requests come. Shared by all workloads.

    Give `duration_s` or `requests`, not both; neither means 600 s.
    """

    rate_rps: Annotated[float, Meta(gt=0, le=1e7, description="requests per second")] = 1.0
    duration_s: PositiveFloat | None = None
    requests: Count | None = None
    arrivals: Literal["poisson", "gamma", "deterministic"] = "poisson"
    arrival_cv: Annotated[float, Meta(ge=0.01, le=20, description="of the gaps, gamma arrivals only")] = 1.0


class Unique(Traffic, frozen=True, kw_only=True):
    """Parameters of `unique`. A cv of 0 gives every request the mean."""

    prompt_tok: Tokens = 1000.0
    prompt_cv: Cv = 0.0
    output_tok: Tokens = 100.0
    output_cv: Cv = 0.0


class LongDocuments(Traffic, frozen=True, kw_only=True):
    """Parameters of `long_documents`."""

    documents: Annotated[int, Meta(ge=1, le=10_000_000)] = 300
    zipf: Annotated[float, Meta(ge=0, le=10, description="exponent of the documents' popularity")] = 1.1
    system_tok: Annotated[int, Meta(ge=1, le=100_000_000)] = 13
    document_tok: Tokens = 21_000.0
    document_cv: Cv = 0.26
    document_min_tok: Count = 500
    question_tok: Tokens = 1_987.0
    question_cv: Cv = 0.3
    output_tok: Tokens = 16.0
    output_cv: Cv = 0.6


def unique(spec: Unique, stream: Stream) -> dict[str, Any]:
    """Prompts that share nothing, of given mean lengths: pure load, no cache."""
    arrival_s = _arrivals(spec, stream)
    n = len(arrival_s)
    return {
        "arrival_s": arrival_s,
        "prompt_tok": _lengths(stream("prompts"), n, spec.prompt_tok, spec.prompt_cv),
        "output_tok": _lengths(stream("outputs"), n, spec.output_tok, spec.output_cv),
        "symbol_ptr": np.zeros(n + 1, dtype=np.int64),
        "symbols": np.empty(0, dtype=np.int64),
        "symbol_tok": np.empty(0, dtype=np.int64),
    }


def long_documents(spec: LongDocuments, stream: Stream) -> dict[str, Any]:
    """Questions about long documents: system prompt, document by Zipf popularity, question of its own.

    Defaults follow the LooGLE workload of Preble's Table 1. A document's length does not depend on its
    popularity. Symbol 0 is the system prompt, 1 to `documents` are the documents, the most popular first,
    then come the questions.
    """
    arrival_s = _arrivals(spec, stream)
    n, documents = len(arrival_s), spec.documents
    document_tok = _lengths(
        stream("documents"), documents, spec.document_tok, spec.document_cv, spec.document_min_tok
    )
    question_tok = _lengths(stream("questions"), n, spec.question_tok, spec.question_cv)
    chosen = zipf_ranks(stream("popularity"), n, documents, spec.zipf)
    parts = np.stack((np.zeros(n, dtype=np.int64), 1 + chosen, 1 + documents + np.arange(n)), axis=1)
    return {
        "arrival_s": arrival_s,
        "prompt_tok": spec.system_tok + document_tok[chosen] + question_tok,
        "output_tok": _lengths(stream("outputs"), n, spec.output_tok, spec.output_cv),
        "symbol_ptr": 3 * np.arange(n + 1),
        "symbols": parts.ravel(),
        "symbol_tok": np.concatenate(([spec.system_tok], document_tok, question_tok)),
        "shared_symbols": np.full(n, 2, dtype=np.int64),
    }


def zipf_ranks(rng: np.random.Generator, count: int, items: int, exponent: float) -> np.ndarray:
    """Draw ranks, 0 the most popular, from a Zipf law cut off at `items`: p(r) ~ (r + 1)^-exponent."""
    weight = np.arange(1, items + 1, dtype=np.float64) ** -exponent
    below = np.cumsum(weight)
    # Inversion spends one uniform a draw, so a longer run starts with the same ranks as a shorter one.
    ranks = np.searchsorted(below, rng.random(count) * below[-1], side="right")
    return np.minimum(ranks, items - 1)


def _lengths(rng: np.random.Generator, count: int, mean: float, cv: float, least: int = 1) -> np.ndarray:
    """Draw whole lengths in tokens from a normal law; what falls below `least` becomes `least`."""
    drawn = mean * (1.0 + cv * rng.standard_normal(count))
    return np.maximum(np.rint(drawn), least).astype(np.int64)


def _arrivals(spec: Traffic, stream: Stream) -> np.ndarray:
    if spec.duration_s is not None and spec.requests is not None:
        raise InputError("duration_s and requests: give one of them, not both")
    duration_s = DEFAULT_DURATION_S if spec.duration_s is None and spec.requests is None else spec.duration_s
    times = arrival_times(
        stream("arrivals"),
        spec.arrivals,
        spec.rate_rps,
        cv=spec.arrival_cv,
        duration_s=duration_s,
        requests=spec.requests,
    )
    if len(times) == 0:
        raise InputError(f"duration_s: nothing arrives within {duration_s} s at {spec.rate_rps} requests/s")
    return times


@dataclass(frozen=True)
class Generator:
    """One synthetic workload: name, what it is, its parameters, and the function that builds its arrays."""

    name: str
    doc: str
    params: type[msgspec.Struct]
    build: Callable[[Any, Stream], dict[str, Any]]


def _entry(
    params: type[msgspec.Struct], build: Callable[[Any, Stream], dict[str, Any]], name: str = ""
) -> Generator:
    return Generator(name or build.__name__, (build.__doc__ or "").partition("\n")[0], params, build)


GENERATORS: dict[str, Generator] = {
    entry.name: entry
    for entry in (
        _entry(LongDocuments, long_documents),
        _entry(Unique, unique),
        _entry(Unique, unique, name="poisson"),  # what people call it
    )
}


def make(name: str, *, seed: int = 0, replicate: int = 0, **params: Any) -> Workload:
    """Make a synthetic workload.

    Parameters
    ----------
    name : str
        A key of `GENERATORS`.
    seed, replicate : int
        The same pair gives the same requests, to the bit, at any rate.
    **params
        Parameters of that workload; units are in their names.

    Raises
    ------
    InputError
        For an unknown name or parameter, with the nearest good one, or a value out of range.
    """
    for key, value in (("seed", seed), ("replicate", replicate)):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 0:
            raise InputError(f"{key}: {value!r} is not allowed; it must be a whole number, 0 or more")
    if name not in GENERATORS:
        raise InputError(f"workload: {name!r} is not known; {nearest(name, GENERATORS)}")
    entry = GENERATORS[name]
    spec = check(entry.params, params, f"workload {name}")
    from fastsim.rng import generator  # brings numba in, which a listing of the registry can do without

    try:
        arrays = entry.build(spec, partial(generator, seed, replicate))
    except InputError as error:
        raise InputError(f"workload {name}: {error}") from None
    notes = f"generated with seed {seed}, replicate {replicate}"
    given = ", ".join(f"{key}={value!r}" for key, value in params.items())
    summary = WorkloadSummary(source=f"{name}({given})", notes=(notes,))
    return Workload(name=name, summary=summary, **arrays)
