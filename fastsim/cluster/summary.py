"""The figures of one run: latencies, cache use, balance, throughput, and whether the cluster kept up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fastsim.cluster import _state as st
from fastsim.cluster._extents import list_copies
from fastsim.stats.intervals import quantile
from fastsim.stats.stability import backlog_score, is_below_capacity, point_is_stable

if TYPE_CHECKING:
    from fastsim.cluster.simulate import Result

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


def summarise(result: Result) -> dict[str, Any]:
    """Return the figures of a run over the requests that arrive after the warm-up, and whether it kept up.

    Returns
    -------
    dict
        Those of `figures`, and ``capacity_rps`` (the highest rate that can be finished, see
        `fastsim.cluster.capacity`), ``offered_load`` (the workload's rate over it; None where all come at one
        time) and ``stable``: whether that is below 1, or the router refuses what would make the backlog
        grow. An unstable run's P99 is None: it grows with the length of the run. Measuring the capacity takes
        a run of its own, some 20,000 requests long. Of a run that was put together by hand the capacity is
        not known (None), and ``stable`` is by its ``backlog_score``.
    """
    known = figures(result)
    capacity = result.capacity
    if capacity is None:
        verdict = {
            "capacity_rps": None,
            "offered_load": None,
            "stable": bool(point_is_stable([known["backlog_score"]])),
        }
    else:
        load = capacity.load(result.offered_rps)
        verdict = {
            "capacity_rps": capacity.rps,
            "offered_load": load,
            "stable": is_below_capacity(load, refuses=capacity.refuses),
        }
    hidden = {} if verdict["stable"] else {name: None for name in known if name.endswith("_p99_s")}
    return known | hidden | verdict


def figures(result: Result) -> dict[str, Any]:
    """Return what a run's own requests tell, P99s too, be it overloaded or not.

    Returns
    -------
    dict
        ``ttft_``, ``tpot_`` and ``latency_`` each with ``mean_s``, ``p50_s``, ``p90_s``, ``p99_s`` (time to
        first token; time per output token after the first, over requests with two and more; arrival to last
        token); ``hit_rate`` (cached over prompt tokens at first admission), ``copies`` (cached tokens at the
        end over distinct ones), ``load_imbalance`` (busiest replica's busy time over the mean: it falls
        towards 1 where all are overloaded), ``busiest_share`` (share of the requests that the replica with
        most of them got), ``utilisation`` (share of replicas x makespan in which a step runs: a replica that
        decodes one request is as busy as one that decodes a hundred), ``preemptions``, ``evicted_blocks``,
        ``throughput_rps`` (requests over makespan), ``requests`` (served), ``rejected`` (share of requests
        that routers refused, which no other figure counts) and ``backlog_score`` (`fastsim.stats.stability`).
    """
    columns = result.columns
    arrival, first, done = columns["arrival_s"], columns["first_token_s"], columns["done_s"]
    served = columns["replica"] >= 0
    late = arrival >= result.warmup_s
    kept = late & served
    several = kept & (columns["output_tok"] > 1)
    latencies = {
        "ttft": (first - arrival)[kept],
        "tpot": (done - first)[several] / (columns["output_tok"][several] - 1),
        "latency": (done - arrival)[kept],
    }
    summary: dict[str, Any] = {}
    for name, values in latencies.items():
        summary |= _figures(name, values)
    makespan = float(np.max(done[served], initial=arrival[0]) - arrival[0])
    busy = result.replicas["busy_s"]
    return summary | {
        "hit_rate": _ratio(columns["hit_tok"][kept].sum(), columns["prompt_tok"][kept].sum()),
        "copies": result.copies,
        "load_imbalance": _ratio(busy.max(), busy.mean()),
        "busiest_share": _ratio(np.bincount(columns["replica"][kept], minlength=1).max(), kept.sum()),
        "utilisation": _ratio(busy.sum(), len(busy) * makespan),
        "preemptions": int(columns["preemptions"].sum()),
        "evicted_blocks": int(result.replicas["evicted_blocks"].sum()),
        "throughput_rps": _ratio(served.sum(), makespan),
        "requests": int(kept.sum()),
        "rejected": _ratio((late & ~served).sum(), late.sum()) or 0.0,
        "backlog_score": float(backlog_score(arrival[served], done[served])) if served.any() else 0.0,
    }


def _figures(name: str, values: np.ndarray) -> dict[str, float | None]:
    if len(values) == 0:
        return {f"{name}_{figure}_s": None for figure in ("mean", *QUANTILES)}
    found = {label: float(quantile(values, p)) for label, p in QUANTILES.items()}
    return {f"{name}_{label}_s": value for label, value in {"mean": float(values.mean()), **found}.items()}


def _ratio(over: float, under: float) -> float | None:
    return float(over / under) if under > 0 else None


def cached_copies(state: Any) -> float:
    """Blocks cached on all replicas at the end of a run over distinct blocks; 1 if nothing is cached.

    At the end nobody holds anything: what is cached stands in the LRU queues. What only one request has is
    distinct.
    """
    rep = state.rep
    cached = int((rep[:, st.FREE] - rep[:, st.BLANK]).sum())
    found = np.empty((int(state.pool[st.EXT_LIVE]), 3), np.int64)
    run, low, high = found[: list_copies(state, found)].T
    distinct = cached - int((high - low).sum()) + _union(run, low, high)
    return float(cached / distinct) if distinct else 1.0


def _union(run: np.ndarray, low: np.ndarray, high: np.ndarray) -> int:
    """Total length of the union of intervals, run by run."""
    if len(run) == 0:
        return 0
    span = int(high.max()) + 1
    order = np.lexsort((low, run))
    low, high = (low + run * span)[order], (high + run * span)[order]
    reach = np.concatenate((low[:1], np.maximum.accumulate(high)[:-1]))
    return int((high - np.maximum(low, np.minimum(reach, high))).sum())
