"""Prompts that grow: every step of an episode, or turn of a session, extends the prompt before it.

Arrival times are fixed before the run, whatever the cluster makes of the steps before: the loop is open. A
step that arrives while its predecessor is still being answered finds that much less in a cache.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta

from fastsim.errors import InputError
from fastsim.workloads.popularity import Popular, choose
from fastsim.workloads.traffic import (
    Cv,
    Sized,
    Stream,
    Tokens,
    TokensOrNone,
    arrivals,
    bursts,
    lengths,
    mean_length,
)

MeanSteps = Annotated[float, Meta(ge=1, le=10_000, description="mean")]
Seconds = Annotated[float, Meta(ge=0, le=1e6)]


class EmbodiedAgent(Sized, frozen=True, kw_only=True):
    """Parameters of `embodied_agent`.

    `increment_tok` is all that a step adds to its predecessor's prompt: the answer to that, where
    `answers_in_prompt`, and what was observed. An answer longer than that leaves one token to observe.
    """

    active_episodes: Annotated[int, Meta(ge=1, le=1_000_000)] = 60
    steps: MeanSteps = 12.0
    steps_cv: Cv = 0.3
    system_tok: Annotated[int, Meta(ge=0, le=100_000_000, description="the same for all episodes")] = 1_735
    task_tok: TokensOrNone = 0.0
    task_cv: Cv = 0.0
    increment_tok: Tokens = 90.0
    increment_cv: Cv = 0.3
    answers_in_prompt: bool = True
    output_tok: Tokens = 16.0
    output_cv: Cv = 0.8


class Agentic(Popular, frozen=True, kw_only=True):
    """Parameters of `agentic`. `rate_rps` counts turns, not sessions, of `turns` each before rounding.

    A turn arrives after its predecessor by the time that one's answer is assumed to take, ``answer_s +
    answer_s_per_tok * output``, and a think time (lognormal, of mean `think_s` and `think_cv`).
    """

    length_law: Literal["normal", "lognormal"] = "lognormal"
    agents: Annotated[int, Meta(ge=1, le=1_000_000, description="kinds, each with its system prompt")] = 4
    turns: MeanSteps = 10.0
    turns_cv: Cv = 0.7
    system_tok: Tokens = 4_000.0
    system_cv: Cv = 0.3
    first_tok: Tokens = 2_000.0
    first_cv: Cv = 1.0
    turn_tok: Tokens = 800.0
    turn_cv: Cv = 1.5
    output_tok: Tokens = 200.0
    output_cv: Cv = 1.0
    think_s: Seconds = 10.0
    think_cv: Cv = 1.5
    answer_s: Seconds = 0.5
    answer_s_per_tok: Seconds = 0.03


def embodied_agent(spec: EmbodiedAgent, stream: Stream) -> dict[str, Any]:
    """Steps of agents in a world: each arrival extends a random active episode by one step.

    After the ALFWorld workload of Preble's Table 1, defaults assumed for the lecture. An episode that is over
    makes room for a new one; all start at their first step. The task (`task_tok`, off by default) is the
    episode's own, what stands before it is common to all.
    """
    if spec.system_tok == 0 and spec.task_tok == 0:
        raise InputError("system_tok and task_tok: one of them must be above 0, for a prompt has a token")
    arrival_s = arrivals(spec, stream)
    n = len(arrival_s)
    slot = stream("episodes").integers(0, spec.active_episodes, n)
    chain, step = _episodes(spec, stream, slot)
    output_tok = lengths(spec, stream("outputs"), n, spec.output_tok, spec.output_cv)
    added_tok = lengths(spec, stream("increments"), n, spec.increment_tok, spec.increment_cv)
    order = np.argsort(chain, kind="stable")
    if spec.answers_in_prompt:
        answered = np.zeros(n, dtype=np.int64)
        answered[order[1:]] = output_tok[order[:-1]]
        added_tok = np.maximum(added_tok - answered, 1)
    first = step == 0
    if spec.task_tok > 0:
        added_tok[first] = lengths(spec, stream("tasks"), n, spec.task_tok, spec.task_cv)[first]
    else:
        added_tok[first] = 0
    system = np.zeros(n, dtype=np.int64)
    system_tok = np.array([spec.system_tok], dtype=np.int64)
    return {
        "arrival_s": arrival_s,
        "output_tok": output_tok,
        "session": chain,
        **_grown(order, step, system, system_tok, added_tok, output_tok, answers=spec.answers_in_prompt),
    }


def agentic(spec: Agentic, stream: Stream) -> dict[str, Any]:
    """Sessions of agents: turns with think times between them, each after all turns and answers before.

    The system prompt is that of the kind of agent, by popularity. No source has been measured for the
    defaults. The run starts without sessions under way; leave out a warm-up of the length of a session.
    """
    turns: dict[str, np.ndarray] = {}

    def members(sessions: int) -> tuple[np.ndarray, np.ndarray]:
        counts = lengths(spec, stream("turns"), sessions, spec.turns, spec.turns_cv)
        total = int(counts.sum())
        turns["output"] = lengths(spec, stream("outputs"), total, spec.output_tok, spec.output_cv)
        gap_s = spec.answer_s + spec.answer_s_per_tok * turns["output"]
        gap_s += _think_times(spec, stream("think"), total)
        return counts, _since_first(counts, gap_s)

    arrival_s, which, counts = bursts(spec, stream, spec.turns, members)
    opened = np.repeat(np.arange(len(counts)), counts)
    turn = np.arange(len(opened)) - np.repeat(np.cumsum(counts) - counts, counts)
    added_tok = lengths(spec, stream("inputs"), len(opened), spec.turn_tok, spec.turn_cv)
    first_tok = lengths(spec, stream("first"), len(counts), spec.first_tok, spec.first_cv)
    added_tok[turn == 0] = first_tok
    agent = choose(spec, stream("popularity"), len(counts), spec.agents)
    system_tok = lengths(spec, stream("systems"), spec.agents, spec.system_tok, spec.system_cv)
    session, output_tok = opened[which], turns["output"][which]
    order = np.argsort(session, kind="stable")
    return {
        "arrival_s": arrival_s,
        "output_tok": output_tok,
        "session": session,
        **_grown(order, turn[which], agent[session], system_tok, added_tok[which], output_tok, answers=True),
    }


def turns_rps(spec: Agentic) -> float:
    """Turns per second in the long run: rounding to whole turns, at least one, changes their mean."""
    return spec.rate_rps * mean_length(spec, spec.turns, spec.turns_cv) / spec.turns


def _episodes(spec: EmbodiedAgent, stream: Stream, slot: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the episode of each request, numbered by slot and round, and its step in it."""
    slots = spec.active_episodes
    rng = stream("steps")
    most = int(np.bincount(slot, minlength=slots).max())
    ends = np.zeros((1, slots), dtype=np.int64)  # by round: steps of a slot's episodes so far
    while ends[-1].min() < most:
        drawn = lengths(spec, rng, slots, spec.steps, spec.steps_cv)
        ends = np.concatenate((ends, ends[-1:] + drawn))
    by_slot = np.argsort(slot, kind="stable")
    counts = np.bincount(slot, minlength=slots)
    place = np.empty(len(slot), dtype=np.int64)  # of the request among those of its slot
    place[by_slot] = np.arange(len(slot)) - np.repeat(np.cumsum(counts) - counts, counts)
    # One search serves all slots: each has a stretch of its own, `most + 1` long, on the line.
    line = (np.minimum(ends, most) + np.arange(slots) * (most + 1)).T.ravel()
    found = np.searchsorted(line, slot * (most + 1) + place, side="right") - 1
    rounds = found - slot * len(ends)
    return rounds * slots + slot, place - ends[rounds, slot]


def _think_times(spec: Agentic, rng: np.random.Generator, count: int) -> np.ndarray:
    variance = math.log1p(spec.think_cv**2)
    return spec.think_s * np.exp(math.sqrt(variance) * rng.standard_normal(count) - 0.5 * variance)


def _since_first(counts: np.ndarray, gap_s: np.ndarray) -> np.ndarray:
    """Return each turn's time after its session's first; `gap_s` is what follows a turn."""
    first = np.cumsum(counts) - counts
    before_s = np.concatenate(([0.0], gap_s[:-1]))
    before_s[first] = 0.0
    total_s = np.cumsum(before_s)
    return np.maximum(total_s - np.repeat(total_s[first], counts), 0.0)


def _grown(
    order: np.ndarray,
    step: np.ndarray,
    system: np.ndarray,
    system_tok: np.ndarray,
    added_tok: np.ndarray,
    output_tok: np.ndarray,
    *,
    answers: bool,
) -> dict[str, np.ndarray]:
    """Build prompts of which each is the one before it in its chain, that one's answer, and what is added.

    Parameters
    ----------
    order : ndarray of int64, shape (n,)
        Requests chain after chain, in each chain as they arrive, from its first step on.
    step : ndarray of int64, shape (n,)
        Place of each request in its chain.
    system, system_tok : ndarray of int64, shape (n,) and (systems,)
        The system prompt of each request, and the tokens of each; 0 tokens are left out.
    added_tok : ndarray of int64, shape (n,)
        Tokens that a request adds; where it is the first of its chain, 0 leaves them out in all chains.
    output_tok : ndarray of int64, shape (n,)
    answers : bool
        Whether prompts hold the answers before them.
    """
    n, stride = len(order), 2 if answers else 1
    skip = int(added_tok[order[0]] == 0)  # chains do not open with a symbol of their own
    lead = int(system_tok[0] > 0)
    # Symbols: systems, then for every request what it adds and its answer. `slot` runs over the latter
    # chain after chain, so that a prompt is an unbroken range of it.
    position = np.empty(n, dtype=np.int64)
    position[order] = np.arange(n)
    length = stride * step + 1 - skip
    ptr = np.concatenate(([0], np.cumsum(lead + length)))
    slot_from = stride * (position - step) + skip
    slot = np.arange(ptr[-1]) + np.repeat(slot_from - lead - ptr[:-1], lead + length)
    heads = ptr[:-1][: n * lead]
    slot[heads] = 0
    base = lead * len(system_tok)
    symbols = base + stride * order[slot // stride] + slot % stride
    symbols[heads] = system[: n * lead]
    own_tok = np.stack((added_tok, output_tok), axis=1)[:, :stride] if answers else added_tok[:, None]
    spelt = added_tok[order]
    if answers:
        spelt[1:] += output_tok[order[:-1]] * (step[order[1:]] > 0)
    total = np.cumsum(spelt)
    start = position - step
    prompt_tok = total[position] - total[start] + spelt[start] + (system_tok[system] if lead else 0)
    symbol_tok = np.concatenate((system_tok[: lead * len(system_tok)], own_tok.ravel()))
    return {
        "prompt_tok": prompt_tok,
        "symbol_ptr": ptr,
        "symbols": symbols,
        # What opens a chain may be left out; its symbol then stands in no prompt.
        "symbol_tok": np.maximum(symbol_tok, 1),
        "answer": base + stride * np.arange(n) + 1 if answers else np.full(n, -1),
    }
