"""Synthetic workloads, one function and one registry entry each.

What is asked and in which order comes from streams of their own, apart from the arrival times: the same
(seed, replicate) gives every policy the same requests, and another rate the same requests at other times.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import msgspec
import numpy as np

from fastsim.errors import InputError
from fastsim.typed import Seed, check, checked, named
from fastsim.workloads.documents import (
    LongDocuments,
    ToolUse,
    VideoQa,
    long_documents,
    tool_use,
    video_qa,
)
from fastsim.workloads.episodes import Agentic, EmbodiedAgent, agentic, embodied_agent, turns_rps
from fastsim.workloads.groups import GroupSampling, Programming, group_sampling, programming
from fastsim.workloads.mixture import Mix, mix
from fastsim.workloads.origin import Origin
from fastsim.workloads.presets import PRESETS
from fastsim.workloads.summary import WorkloadSummary
from fastsim.workloads.traffic import Cv, Sized, Stream, Tokens, arrivals, lengths
from fastsim.workloads.workload import Workload


class Unique(Sized, frozen=True, kw_only=True):
    """Parameters of `unique`. A cv of 0 gives every request the mean."""

    prompt_tok: Tokens = 1000.0
    prompt_cv: Cv = 0.0
    output_tok: Tokens = 100.0
    output_cv: Cv = 0.0


def unique(spec: Unique, stream: Stream) -> dict[str, Any]:
    """Prompts that share nothing, of given mean lengths: pure load, no cache."""
    arrival_s = arrivals(spec, stream)
    n = len(arrival_s)
    return {
        "arrival_s": arrival_s,
        "prompt_tok": lengths(spec, stream("prompts"), n, spec.prompt_tok, spec.prompt_cv),
        "output_tok": lengths(spec, stream("outputs"), n, spec.output_tok, spec.output_cv),
        "symbol_ptr": np.zeros(n + 1, dtype=np.int64),
        "symbols": np.empty(0, dtype=np.int64),
        "symbol_tok": np.empty(0, dtype=np.int64),
    }


@dataclass(frozen=True)
class Generator:
    """One synthetic workload.

    Parameters
    ----------
    name, doc : str
    params : msgspec.Struct type
        Its parameters, all with defaults.
    build : callable
        (parameters, streams by name) -> arrays of a `Workload`.
    stretches : bool
        Whether another rate only stretches the arrival times. Where requests follow each other by times of
        their own (think times, gaps) it changes their order, too.
    rate_rps : callable
        Parameters -> requests per second in the long run.
    """

    name: str
    doc: str
    params: type[msgspec.Struct]
    build: Callable[[Any, Stream], dict[str, Any]]
    stretches: bool = True
    rate_rps: Callable[[Any], float] = lambda spec: spec.rate_rps

    @property
    def presets(self) -> dict[str, dict[str, Any]]:
        """Named sets of parameters, for ``preset=NAME``."""
        return PRESETS.get(self.name, {})


def _entry(
    params: type[msgspec.Struct],
    build: Callable[[Any, Stream], dict[str, Any]],
    name: str = "",
    **more: Any,
) -> Generator:
    return Generator(name or build.__name__, (build.__doc__ or "").partition("\n")[0], params, build, **more)


GENERATORS: dict[str, Generator] = {
    entry.name: entry
    for entry in (
        _entry(LongDocuments, long_documents),
        _entry(VideoQa, video_qa),
        _entry(ToolUse, tool_use),
        _entry(EmbodiedAgent, embodied_agent),
        _entry(Programming, programming, stretches=False),
        _entry(Agentic, agentic, stretches=False, rate_rps=turns_rps),
        _entry(GroupSampling, group_sampling),
        _entry(Mix, mix),
        _entry(Unique, unique),
        _entry(Unique, unique, name="poisson"),  # what people call it
    )
}


def specify(name: str, given: Mapping[str, Any]) -> tuple[Generator, Any]:
    """Return a workload's entry and its parameters in full, presets and defaults filled in.

    Parameters
    ----------
    name : str
        A key of `GENERATORS`.
    given : mapping
        Parameters, and `preset`, the name of a set of them that stands behind those given.

    Raises
    ------
    InputError
        For an unknown name, preset or parameter, with the nearest good one, or a value out of range.
    """
    entry = named("workload:", name, GENERATORS)
    own = dict(given)
    preset = own.pop("preset", None)
    if preset is None:
        return entry, check(entry.params, own, f"workload {name}")
    behind = dict(named(f"workload {name}: preset =", preset, entry.presets))
    if "duration_s" in own or "requests" in own:  # the one given replaces whichever the preset has
        behind.pop("duration_s", None)
        behind.pop("requests", None)
    return entry, check(entry.params, {**behind, **own}, f"workload {name}")


@checked
def make(name: str, *, seed: Seed = 0, replicate: Seed = 0, **params: Any) -> Workload:
    """Make a synthetic workload.

    Parameters
    ----------
    name : str
        A key of `GENERATORS`.
    seed, replicate : int
        The same pair gives the same requests, to the bit, at any rate.
    **params
        Parameters of that workload; units are in their names. `preset` names a set of them (`PRESETS`) for
        those not given.

    Raises
    ------
    InputError
        For an unknown name or parameter, with the nearest good one, or a value out of range.
    """
    _, spec = specify(name, params)
    made = build(name, spec, int(seed), int(replicate))
    notes = f"generated with seed {seed}, replicate {replicate}"
    given = ", ".join(f"{key}={value!r}" for key, value in params.items())
    return replace(made, summary=WorkloadSummary(source=f"{name}({given})", notes=(notes,)))


def build(name: str, spec: Any, seed: int, replicate: int) -> Workload:
    """Make a synthetic workload of parameters that are checked."""
    from fastsim.rng import generator  # brings numba in, which a listing of the registry can do without

    try:
        arrays = GENERATORS[name].build(spec, partial(generator, seed, replicate))
    except InputError as error:
        raise InputError(f"workload {name}: {error}") from None
    return Workload(name=name, origin=Origin(name, spec, seed, replicate), **arrays)
