"""The figures of one run: latencies, cache use, balance, throughput, and whether the cluster kept up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fastsim.cluster import _state as st
from fastsim.cluster._extents import list_copies
from fastsim.stats.intervals import quantile
from fastsim.stats.stability import backlog_score, point_is_stable

if TYPE_CHECKING:
    from fastsim.cluster.simulate import Result

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


def summarise(result: Result) -> dict[str, Any]:
    """Return the figures of a run over the requests that arrive after the warm-up.

    Returns
    -------
    dict
        ``ttft_``, ``tpot_`` and ``latency_`` each with ``mean_s``, ``p50_s``, ``p90_s``, ``p99_s`` (time to
        first token; time per output token after the first, over requests with two and more; arrival to last
        token); ``hit_rate`` (cached over prompt tokens at first admission), ``copies`` (cached tokens at the
        end over distinct ones), ``load_imbalance`` (busiest replica's busy time over the mean),
        ``utilisation`` (busy time over replicas x makespan), ``preemptions``, ``evicted_blocks``,
        ``throughput_rps`` (requests over makespan), ``requests`` (served), ``rejected`` (share of requests
        that routers refused, which no other figure counts), ``backlog_score`` and ``stable``
        (`fastsim.stats.stability`). An unstable run's P99 is None: it grows with the length of the run.
    """
    columns = result.columns
    arrival, first, done = columns["arrival_s"], columns["first_token_s"], columns["done_s"]
    served = columns["replica"] >= 0
    late = arrival >= result.warmup_s
    kept = late & served
    several = kept & (columns["output_tok"] > 1)
    score = float(backlog_score(arrival[served], done[served]))
    stable = bool(point_is_stable([score]))
    latencies = {
        "ttft": (first - arrival)[kept],
        "tpot": (done - first)[several] / (columns["output_tok"][several] - 1),
        "latency": (done - arrival)[kept],
    }
    summary: dict[str, Any] = {}
    for name, values in latencies.items():
        summary |= _figures(name, values, stable)
    makespan = float(np.max(done[served], initial=arrival[0]) - arrival[0])
    busy = result.replicas["busy_s"]
    return summary | {
        "hit_rate": _ratio(columns["hit_tok"][kept].sum(), columns["prompt_tok"][kept].sum()),
        "copies": result.copies,
        "load_imbalance": _ratio(busy.max(), busy.mean()),
        "utilisation": _ratio(busy.sum(), len(busy) * makespan),
        "preemptions": int(columns["preemptions"].sum()),
        "evicted_blocks": int(result.replicas["evicted_blocks"].sum()),
        "throughput_rps": _ratio(served.sum(), makespan),
        "requests": int(kept.sum()),
        "rejected": _ratio((late & ~served).sum(), late.sum()) or 0.0,
        "backlog_score": score,
        "stable": stable,
    }


def _figures(name: str, values: np.ndarray, stable: bool) -> dict[str, float | None]:
    if len(values) == 0:
        return {f"{name}_{figure}_s": None for figure in ("mean", *QUANTILES)}
    figures: dict[str, float | None] = {f"{name}_mean_s": float(values.mean())}
    for label, p in QUANTILES.items():
        figures[f"{name}_{label}_s"] = float(quantile(values, p)) if stable or label != "p99" else None
    return figures


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
