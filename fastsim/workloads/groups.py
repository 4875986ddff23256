"""Several answers to one prompt: parallel generations of a program, groups of samples for learning."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta

from fastsim.workloads.documents import Items
from fastsim.workloads.popularity import Popular, choose
from fastsim.workloads.traffic import (
    Cv,
    Sized,
    Stream,
    Tokens,
    bursts,
    lengths,
)

GroupSize = Annotated[int, Meta(ge=1, le=100_000, description="requests with one prompt")]


class Programming(Popular, frozen=True, kw_only=True):
    """Parameters of `programming`. `rate_rps` counts generations, not problems."""

    zipf: Annotated[float, Meta(ge=0, le=10)] = 0.0
    problems: Items = 150
    generations: GroupSize = 8
    gap_s: Annotated[float, Meta(ge=0, le=3600, description="between generations of a group")] = 0.05
    system_tok: Annotated[int, Meta(ge=0, le=100_000_000)] = 735
    problem_tok: Tokens = 3_020.0
    problem_cv: Cv = 0.4
    private_tok: Annotated[int, Meta(ge=0, le=100_000_000)] = 116
    output_tok: Tokens = 190.0
    output_cv: Cv = 0.5


class GroupSampling(Sized, frozen=True, kw_only=True):
    """Parameters of `group_sampling`. `rate_rps` counts samples, not groups."""

    length_law: Literal["normal", "lognormal"] = "lognormal"
    samples: GroupSize = 16
    system_tok: Annotated[int, Meta(ge=0, le=100_000_000)] = 200
    prompt_tok: Tokens = 500.0
    prompt_cv: Cv = 0.5
    output_tok: Tokens = 1_000.0
    output_cv: Cv = 1.0


def programming(spec: Programming, stream: Stream) -> dict[str, Any]:
    """Parallel generations for programming problems: system prompt with examples, problem, own seed text.

    After the APPS workload of Preble's Table 1, defaults assumed for the lecture. The generations of a group
    follow each other every `gap_s`, whether or not the one before is finished. Symbol 0 is the system prompt,
    then come the problems.
    """
    rng = stream("problems")
    problem_tok = lengths(spec, rng, spec.problems, spec.problem_tok, spec.problem_cv)
    arrival_s, which = _groups(spec, stream, spec.generations, spec.gap_s)
    groups = _count_groups(which, spec.generations)
    chosen = choose(spec, stream("popularity"), groups, spec.problems)[which // spec.generations]
    # Every generation's own tokens are left to the end of the prompt: nobody shares them.
    return _one_prompt(
        spec, stream, spec.generations, arrival_s, which, chosen, problem_tok, spec.private_tok
    )


def group_sampling(spec: GroupSampling, stream: Stream) -> dict[str, Any]:
    """Groups of samples: so many requests with one and the same prompt at one instant, as learning asks.

    Every group has a prompt of its own after a system prompt that all share. No source has been measured for
    the defaults. Symbol 0 is the system prompt, then come the groups' prompts.
    """
    arrival_s, which = _groups(spec, stream, spec.samples, 0.0)
    group = which // spec.samples
    groups = _count_groups(which, spec.samples)
    prompt_tok = lengths(spec, stream("prompts"), groups, spec.prompt_tok, spec.prompt_cv)
    return _one_prompt(spec, stream, spec.samples, arrival_s, which, group, prompt_tok, 0)


def _groups(spec: Sized, stream: Stream, size: int, gap_s: float) -> tuple[np.ndarray, np.ndarray]:
    """Return (arrival_s, which): `which` divided by `size` is the group, the rest the place in it."""

    def members(groups: int) -> tuple[np.ndarray, np.ndarray]:
        return np.full(groups, size), np.tile(gap_s * np.arange(size), groups)

    arrival_s, which, _ = bursts(spec, stream, size, members)
    return arrival_s, which


def _count_groups(which: np.ndarray, size: int) -> int:
    return int(which.max()) // size + 1


def _one_prompt(
    spec: Programming | GroupSampling,
    stream: Stream,
    size: int,
    arrival_s: np.ndarray,
    which: np.ndarray,
    item: np.ndarray,
    item_tok: np.ndarray,
    private_tok: int,
) -> dict[str, Any]:
    n = len(arrival_s)
    drawn = _count_groups(which, size) * size
    output_tok = lengths(spec, stream("outputs"), drawn, spec.output_tok, spec.output_cv)[which]
    parts = np.stack((np.zeros(n, dtype=np.int64), 1 + item), axis=1)
    symbol_tok = np.concatenate(([spec.system_tok], item_tok))
    if spec.system_tok == 0:
        parts, symbol_tok = parts[:, 1:] - 1, item_tok
    return {
        "arrival_s": arrival_s,
        "prompt_tok": spec.system_tok + item_tok[item] + private_tok,
        "output_tok": output_tok,
        "symbol_ptr": parts.shape[1] * np.arange(n + 1),
        "symbols": parts.ravel(),
        "symbol_tok": symbol_tok,
    }
