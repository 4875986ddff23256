"""Other workloads from one: at another rate, repeated, or with its sessions in another order."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import numpy as np

from fastsim.errors import InputError
from fastsim.workloads.sessions import chain_starts, sessions_of
from fastsim.workloads.workload import Workload


def compress_time(workload: Workload, factor: float) -> Workload:
    """Divide all arrival times by `factor`: the same requests, `factor` times the rate.

    Where requests wait for answers, sessions start so much more often and think times stay.
    """
    note = f"rate times {factor:g} by dividing arrival times"
    if workload.is_closed:
        started_s = workload.arrival_s[chain_starts(workload.follows)]
        arrival_s = started_s / factor + (workload.arrival_s - started_s)
        order = np.argsort(arrival_s, kind="stable")
        return workload.arranged(order, arrival_s[order], note + " of sessions; think times are as they were")
    return replace(
        workload,
        arrival_s=workload.arrival_s / factor,
        summary=workload.summary.noted(note),
        origin=workload.origin and workload.origin.faster(factor),
    )


def thin(workload: Workload, share: float, rng: np.random.Generator) -> Workload:
    """Keep each request with probability `share`, at its time.

    A request kept at one share is kept at every larger one (from the same stream), which makes rates
    comparable. Whatever a dropped request would have left in a cache is missing, too. Requests that wait for
    each other's answers are kept or dropped together.
    """
    if share > 1.0:
        raise InputError(f"rate_scale: {share:g} is not allowed with thinning, which only lowers the rate")
    kept = (rng.random(len(workload)) < share)[chain_starts(workload.follows)]
    return workload.take(kept, f"rate times {share:g} by keeping {int(kept.sum())} requests at random")


def repeat(workload: Workload, times: int) -> Workload:
    """Play the workload `times` times back to back, one mean gap between the repetitions.

    Every repetition has symbols and sessions of its own: it shares prefixes within itself as the original
    does and nothing with the others. With the same symbols all but the first repetition would find their
    whole prompts cached, and the hit rate would say how often the trace was repeated.
    """
    if times == 1:
        return workload
    n, span_s = len(workload), workload.summary.span_s
    if span_s <= 0:
        raise InputError(
            f"repeat: workload {workload.name} cannot be repeated, all its requests come at once"
        )
    period_s = span_s * n / (n - 1)
    turn = np.repeat(np.arange(times), n)
    symbols = len(workload.symbol_tok)
    sessions = int(workload.session.max()) + 1
    count = np.tile(np.diff(workload.symbol_ptr), times)

    def fresh(ids: np.ndarray, width: int, turn: np.ndarray = turn) -> np.ndarray:
        tiled = np.tile(ids, times)
        return np.where(tiled >= 0, tiled + turn * width, -1)

    return replace(
        workload,
        arrival_s=np.tile(workload.arrival_s, times) + turn * period_s,
        prompt_tok=np.tile(workload.prompt_tok, times),
        output_tok=np.tile(workload.output_tok, times),
        symbol_ptr=np.concatenate(([0], np.cumsum(count))),
        symbols=fresh(workload.symbols, symbols, np.repeat(np.arange(times), len(workload.symbols))),
        symbol_tok=np.tile(workload.symbol_tok, times),
        shared_symbols=np.tile(workload.shared_symbols, times),
        answer=fresh(workload.answer, symbols),
        session=fresh(workload.session, sessions),
        priority=np.tile(workload.priority, times),
        follows=fresh(workload.follows, n),
        think_s=np.tile(workload.think_s, times),
        summary=workload.summary.noted(
            f"repeated {times} times, every {period_s:g} s; repetitions share no tokens with each other"
        ),
        origin=None,
    )


def shuffle_sessions(workload: Workload, rng: np.random.Generator, *, cached: bool = False) -> Workload:
    """Let whole sessions swap their start times at random; the gaps within a session stay.

    The requests, their prompts, the set of start times and the span stay the same: a session starts only
    where it ends within the trace, so a long one early. The result is another run of the same traffic, at
    its rate.

    `cached` keeps derived sessions on disk.
    """
    session = sessions_of(workload, cached=cached)
    count = int(session.max()) + 1
    start_s = np.full(count, np.inf)
    np.minimum.at(start_s, session, workload.arrival_s)
    last_s = np.zeros(count)
    np.maximum.at(last_s, session, workload.arrival_s)
    new_start_s = _swapped_starts(start_s, last_s - start_s, float(workload.arrival_s[-1]), rng)
    arrival_s = new_start_s[session] + (workload.arrival_s - start_s[session])
    order = np.argsort(arrival_s, kind="stable")
    given = (workload.session >= 0).any()
    source = "given in the source" if given else "derived from shared prefixes"
    note = f"{count:,} sessions, {source}, have swapped their start times at random"
    return replace(workload, session=session).arranged(order, arrival_s[order], note)


def _swapped_starts(
    start_s: np.ndarray, length_s: np.ndarray, end_s: float, rng: np.random.Generator
) -> np.ndarray:
    """Give every session one of the start times, at random among those from which it ends by `end_s`.

    The longest session chooses first. The times open to it are open to all shorter ones, too, and there are
    as many times as sessions that need them, as the trace itself shows: everyone finds one.
    """
    slack_s = 1e-9 * max(end_s, 1.0)  # the trace's own sums are rounded
    times_s = deque(np.sort(start_s).tolist())
    chosen_s = np.empty_like(start_s)
    open_s: list[float] = []
    draws = rng.random(len(start_s)).tolist()
    for turn, i in enumerate(np.argsort(-length_s, kind="stable").tolist()):
        while times_s and times_s[0] <= end_s - length_s[i] + slack_s:
            open_s.append(times_s.popleft())
        pick = int(draws[turn] * len(open_s))
        open_s[pick], open_s[-1] = open_s[-1], open_s[pick]
        chosen_s[i] = open_s.pop()
    return chosen_s
