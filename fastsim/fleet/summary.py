"""The figures of one run of a fleet: accuracy, cost, latency, and whether every cluster kept up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fastsim.cluster.summary import QUANTILES
from fastsim.fleet.capacity import most_loaded
from fastsim.stats.intervals import quantile

if TYPE_CHECKING:
    from fastsim.fleet.simulate import Result


def summarise(result: Result) -> dict[str, Any]:
    """Return the figures of a run over the questions that arrive after the warm-up.

    Returns
    -------
    dict
        ``accuracy`` (mean score of the answers), ``call_cost`` (mean price of the calls made), ``gpu_cost``
        (price of all replicas' GPU-hours a question, at the rate at which these came), ``cost`` (both),
        ``latency_mean_s``, ``_p50_s``, ``_p90_s``, ``_p99_s`` (question to answer), ``calls`` (made a
        question), ``escalated`` (share of questions with more than one call), ``shed`` (share with a refused
        call after the first), ``unanswered`` (share, in no other figure but the costs), ``hit_rate``,
        ``utilisation`` (share of all replicas' time in which a step runs) and ``utilisation_max`` (of the
        busiest cluster), ``backlog_score`` (of the worst cluster), ``questions``, ``capacity_rps`` (questions
        per second that the most loaded cluster can take), ``offered_load`` (the rate of questions over it),
        ``stable`` (whether every cluster keeps up), and ``clusters``: for each model its ``calls`` a
        question, ``utilisation``, ``hit_rate``, ``load_imbalance``, ``busiest_share``,
        ``latency_mean_s`` and ``latency_p99_s`` of its calls, ``refused``, ``backlog_score``,
        ``offered_load`` and ``stable``. One overloaded cluster makes the run unstable, which has no P99.
        Where load decides on escalations, no more than what it cannot refuse has to be kept up with. What
        clusters can take is measured by a run of each (`fleet.capacity`).
    """
    rate_rps = result.offered_rps
    known = dict(result.figures)
    stable = all(demand.keeps_up(rate_rps) for demand in result.demands.values())
    busiest = most_loaded(result.demands)
    if not stable:
        known["latency_p99_s"] = None
    return known | {
        "capacity_rps": 1.0 / busiest.each_s,
        "offered_load": busiest.offered_load(rate_rps),
        "stable": stable,
        "clusters": {model: _of_cluster(result, model) for model in result.clusters},
    }


def figures(result: Result) -> dict[str, Any]:
    """All but the clusters, the P99 of an overloaded run too: replications decide on that together."""
    columns = result.columns
    kept = columns["arrival_s"] >= result.warmup_s
    answered = kept & np.isfinite(columns["done_s"])
    latency = (columns["done_s"] - columns["arrival_s"])[answered]
    share = _Mean(kept)
    utilisation = [_utilisation(result, model) for model in result.clusters]
    scores = [run.figures["backlog_score"] for run in result.clusters.values()]
    call_cost, gpu_cost = share(columns["cost"]), _gpu_cost(result)
    hits = result.trace.hit_tok[kept].sum()
    prompts = (result.plan.prompt_tok * result.trace.made)[kept].sum()
    return {
        "accuracy": _Mean(answered)(columns["score"]),
        "call_cost": call_cost,
        "gpu_cost": gpu_cost,
        "cost": None if call_cost is None else call_cost + gpu_cost,
        "latency_mean_s": float(latency.mean()) if len(latency) else None,
        **{
            f"latency_{name}_s": float(quantile(latency, p)) if len(latency) else None
            for name, p in QUANTILES.items()
        },
        "calls": share(columns["calls"]),
        "escalated": share(columns["calls"] > 1),
        "shed": share((columns["refused"] > 0) & np.isfinite(columns["done_s"])),
        "unanswered": share(~np.isfinite(columns["done_s"])),
        "hit_rate": float(hits / prompts) if prompts else None,
        "utilisation": _all_busy(result),
        "utilisation_max": max(utilisation),
        "backlog_score": max(scores),
        "questions": int(kept.sum()),
    }


class _Mean:
    """Means over some of the questions; None if there are none."""

    def __init__(self, kept: np.ndarray) -> None:
        self.kept = kept

    def __call__(self, values: np.ndarray) -> float | None:
        return float(values[self.kept].mean()) if self.kept.any() else None


def _makespan_s(result: Result) -> float:
    """From the first question to the last end of a call."""
    first = float(result.columns["arrival_s"][0])
    return float(np.nanmax(result.trace.done_s, initial=first)) - first


def _utilisation(result: Result, model: str) -> float:
    busy, span_s = result.clusters[model].replicas["busy_s"], _makespan_s(result)
    return float(busy.sum() / (len(busy) * span_s)) if span_s > 0.0 else 0.0


def _all_busy(result: Result) -> float:
    """Of all replicas, those of clusters that nobody called too."""
    replicas = sum(served.cluster.replicas for served in result.served.values())
    busy_s, span_s = (
        sum(float(run.replicas["busy_s"].sum()) for run in result.clusters.values()),
        _makespan_s(result),
    )
    return busy_s / (replicas * span_s) if span_s > 0.0 else 0.0


def _gpu_cost(result: Result) -> float:
    """Price of the GPUs for the mean time between two questions (their whole time, if there is only one)."""
    per_hour = sum(served.gpus * served.gpu_hour for served in result.served.values())
    if per_hour == 0.0:
        return 0.0
    arrival = result.columns["arrival_s"]
    span_s = float(arrival[-1] - arrival[0])
    each_s = span_s / (len(arrival) - 1) if span_s > 0.0 else _makespan_s(result) / len(arrival)
    return per_hour * each_s / 3600.0


def _of_cluster(result: Result, model: str) -> dict[str, Any]:
    run = result.clusters[model].figures
    taken = ("hit_rate", "load_imbalance", "busiest_share")
    taken += ("latency_mean_s", "latency_p99_s", "backlog_score")
    demand, rate_rps = result.demands[model], result.offered_rps
    stable = demand.keeps_up(rate_rps)
    made = (result.plan.calls == result.plan.models.index(model)) & result.trace.made
    return {
        "calls": float(made.sum() / result.plan.size),
        "utilisation": _utilisation(result, model),
        **{name: run[name] if stable or name != "latency_p99_s" else None for name in taken},
        "offered_load": demand.offered_load(rate_rps),
        "stable": stable,
        "refused": run["rejected"],
    }
