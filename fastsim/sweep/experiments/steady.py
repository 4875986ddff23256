"""The steady state of a cluster: how long its queues and caches take to forget that they began empty."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastsim.errors import InputError
from fastsim.sweep.experiments import cluster
from fastsim.sweep.params import Params

PILOTS = 8  # runs whose average MSER-5 looks at
MEMORIES = 4.0  # times 1 / (1 - load)^2 requests: least warm-up of a queue
TURNOVERS = 8.0  # least warm-up of caches: their capacity so many times over, in tokens computed
LEAST_REQUESTS = 10  # MSER-5 has two batches
MOST_WINDOWS = 4.0  # longest pilot and longest warm-up, in lengths of the window that is measured


@dataclass(frozen=True)
class Warmup:
    """What the pilot runs of one cell say.

    Attributes
    ----------
    needed_s : float
        Warm-up in seconds, at most four lengths of the window that is measured.
    settled, growing : bool
        Whether the cell settles within that, and whether its backlog grows instead.
    long_enough : bool
        Whether the pilots were, for MSER-5.
    """

    needed_s: float
    settled: bool
    growing: bool
    long_enough: bool = False


def settle(cells: Sequence[Params], seed: int, note: Callable[[str], None]) -> list[Params]:
    """Give the cells of one workload that ask for it the same warm-up, that of the slowest to settle.

    Notes
    -----
    What a cell needs is the longest of MSER-5 over the average of eight pilot runs (latencies and hits, times
    1.5), of 4 / (1 - load)^2 requests, and of the time in which the cluster computes eight times the tokens
    that its caches hold: hit rates creep up for so long, by less from one minute to the next than MSER-5 can
    see. Pilots are doubled while MSER-5 finds no truncation within their first half. Neither pilots nor
    warm-ups take more than four lengths of the window that is measured. Cells that need more, or whose
    backlog grows, are marked and do not count where others settle.
    """
    asking = [cell for cell in cells if cell["warmup_s"] == cluster.AUTO]
    found = [_warmup(cell, seed) for cell in asking]
    settled = [one for one in found if one.settled] or [one for one in found if not one.growing]
    warmup_s = float(math.ceil(max((one.needed_s for one in settled), default=0.0)))
    odd = [
        cell["router"] for cell, one in zip(asking, found, strict=True) if not one.settled and not one.growing
    ]
    if odd:
        note(
            f"{cluster.worded(asking[0])}: {', '.join(dict.fromkeys(odd))} did not settle in pilots; take "
            'a longer duration_s, or estimand = "transient"'
        )
    states = iter(found)
    return [
        {**cell, "warmup_s": warmup_s, "settled": next(states).settled} if cell in asking else cell
        for cell in cells
    ]


def _warmup(cell: Params, seed: int) -> Warmup:
    """Pilots of a cell, doubled while they are too short for MSER-5; its points tell what cannot be run."""
    try:
        window_s = _window_s(cell, seed)
        load, length_s = _load(cell, seed), window_s
    except InputError:
        return Warmup(0.0, settled=False, growing=True)
    if load >= 1.0:
        return Warmup(0.0, settled=False, growing=True)
    while True:
        found = _pilots(cell, seed, load, length_s, window_s)
        if found.long_enough or found.growing or length_s >= MOST_WINDOWS * window_s:
            return found
        length_s = min(2 * length_s, MOST_WINDOWS * window_s)


def _pilots(cell: Params, seed: int, load: float, length_s: float, window_s: float) -> Warmup:
    """Run the beginnings of the first replications, of that length."""
    from fastsim.cluster.config import Cluster
    from fastsim.stats import backlog_score, common_warmup, point_is_stable

    longer = {**cell, "warmup_s": max(length_s - window_s, 0.0)}
    latencies: list[Any] = []
    misses: list[Any] = []
    arrivals: list[Any] = []
    full_s: list[float] = []
    scores: list[float] = []
    config = Cluster(**cell["cluster"])
    hold_tok = TURNOVERS * config.replicas * config.kv_blocks * config.block
    for replicate in range(PILOTS):
        columns = cluster.serve(longer, cluster.prepare(longer, seed, replicate), seed, replicate).columns
        kept = columns["replica"] >= 0
        if kept.sum() < LEAST_REQUESTS:
            return Warmup(0.0, settled=False, growing=True)
        arrival_s, prompt_tok = columns["arrival_s"][kept], columns["prompt_tok"][kept]
        computed_tok = prompt_tok - columns["hit_tok"][kept]
        latencies.append(columns["done_s"][kept] - arrival_s)
        misses.append(computed_tok / prompt_tok)
        arrivals.append(arrival_s)
        full_s.append(hold_tok * float(arrival_s[-1]) / max(float(computed_tok.sum()), 1.0))
        scores.append(backlog_score(arrival_s, columns["done_s"][kept]))
    shortest = min(map(len, arrivals))
    mean_arrival_s = np.mean([one[:shortest] for one in arrivals], axis=0)
    truncation = common_warmup([latencies, misses])
    queue_s = MEMORIES / (1.0 - load) ** 2 * float(mean_arrival_s[-1]) / shortest
    needed_s = max(float(mean_arrival_s[truncation.requests]), queue_s, float(np.mean(full_s)))
    growing, most_s = not point_is_stable(scores), MOST_WINDOWS * window_s
    return Warmup(
        min(needed_s, most_s),
        settled=truncation.long_enough and needed_s <= most_s and not growing,
        growing=growing,
        long_enough=truncation.long_enough,
    )


def _load(cell: Params, seed: int) -> float:
    """Offered load over capacity; 0 where refusals keep the backlog bounded."""
    capacity = cluster.capacity_of(cell, seed)
    rate_rps = cluster.prepare({**cell, "warmup_s": 0.0}, seed, 0).offered_rps
    return 0.0 if capacity.refuses else math.inf if rate_rps is None else rate_rps / capacity.rps


def _window_s(cell: Params, seed: int) -> float:
    workload = cell["workload"]
    if "duration_s" in workload:
        return float(workload["duration_s"])
    return float(cluster.prepare({**cell, "warmup_s": 0.0}, seed, 0).arrival_s[-1])
