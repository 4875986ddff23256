"""What a queueing simulation reports: intervals over replications, with theory beside them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsim.queueing.expected import Expected
from fastsim.queueing.run import RunResult
from fastsim.queueing.spec import QueueSpec
from fastsim.stats import Interval, mean_interval

__all__ = ["Measure", "QueueResult", "summarise_runs"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Measure:
    """A time's mean and quantiles, in the time unit of the sizes.

    Attributes
    ----------
    mean : Interval
        Of the replications' means.
    quantiles : mapping of float to Interval
        Of the replications' quantiles, by probability; empty where there is no steady state.
    """

    mean: Interval
    quantiles: Mapping[float, Interval]


@dataclass(frozen=True)
class QueueResult:
    """Answer to a queueing question.

    Attributes
    ----------
    spec : QueueSpec
        The question.
    stable : bool
        Whether there is a steady state; without one no quantiles are given and the means describe the runs
        only.
    offered_load : float
        Arrival rate over the highest that dispatcher and servers can keep up with (`queueing.capacity`).
    replications, requests, warmup : int
        Independent runs, requests measured in each, and requests left out before them.
    response : Measure
        Time in system.
    wait : Measure or None
        Time before service; None under processor sharing.
    no_wait : Interval or None
        Fraction of requests served at once; None under processor sharing.
    queue_length : Interval
        Mean number of requests a server, by Little's law.
    idle_probability : Interval
        Fraction of time that a server is idle.
    lengths : float64[k] or None
        Fraction of time that a server holds 0, 1, ... requests, if asked for.
    theory : Expected or None
        What a formula says.
    runs : mapping of str to float64[replications]
        Each replication's values, for paired comparisons with other dispatchers on the same seed.
    samples : tuple of float64[requests] or None
        Every replication's response times, if they were kept.
    reached : bool or None
        Whether the relative half-width asked for was reached; None if none was asked for.
    notes : tuple of str
        What a reader should know.
    """

    spec: QueueSpec
    stable: bool
    offered_load: float
    replications: int
    requests: int
    warmup: int
    response: Measure
    wait: Measure | None
    no_wait: Interval | None
    queue_length: Interval
    idle_probability: Interval
    lengths: Array | None
    theory: Expected | None
    runs: Mapping[str, Array]
    samples: tuple[Array, ...] | None
    reached: bool | None
    notes: tuple[str, ...]

    def length_quantile(self, p: float) -> int:
        """Smallest n such that a server holds at most n requests a fraction p of the time.

        Raises
        ------
        ValueError
            If queue lengths were not asked for.
        """
        if self.lengths is None:
            raise ValueError("queue lengths were not counted; ask for queue_lengths")
        return int(np.searchsorted(np.cumsum(self.lengths), p - 1e-12))

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers for JSON: what was asked, intervals as value, low and high, and theory."""
        spec = self.spec
        row: dict[str, Any] = {
            "servers": spec.servers,
            "dispatcher": spec.dispatcher.name,
            "discipline": spec.discipline,
            "utilisation": spec.utilisation,
            "size": spec.size.name,
            "arrivals": spec.arrivals.name,
            "update": spec.update,
            "period": spec.period,
            "stable": self.stable,
            "offered_load": self.offered_load,
            "replications": self.replications,
            "requests": self.requests,
            "warmup": self.warmup,
            "response": _plain(self.response),
            "wait": _plain(self.wait),
            "no_wait": _numbers(self.no_wait),
            "queue_length": _numbers(self.queue_length),
            "idle_probability": _numbers(self.idle_probability),
            "reached": self.reached,
            "notes": list(self.notes),
        }
        if self.lengths is not None:
            row["lengths"] = self.lengths.tolist()
        if self.theory:
            row["theory"] = {
                "model": self.theory.model,
                "kind": self.theory.kind,
                "response_mean": self.theory.response_mean,
                "wait_mean": self.theory.wait_mean,
                "response": _labelled(self.theory.response or {}),
                "wait": _labelled(self.theory.wait or {}),
            }
        return row


def label(p: float) -> str:
    """``p99`` for 0.99, ``p99.9`` for 0.999."""
    return f"p{100.0 * p:.10g}"


def _labelled(values: Mapping[float, float]) -> dict[str, float]:
    return {label(p): value for p, value in values.items()}


def _numbers(interval: Interval | None) -> dict[str, float | None] | None:
    if interval is None:
        return None
    values = {"value": interval.value, "low": interval.low, "high": interval.high}
    return {name: value if math.isfinite(value) else None for name, value in values.items()}


def _plain(measure: Measure | None) -> dict[str, Any] | None:
    if measure is None:
        return None
    return {"mean": _numbers(measure.mean)} | {label(p): _numbers(q) for p, q in measure.quantiles.items()}


def per_replication(results: Sequence[RunResult], ps: Sequence[float]) -> dict[str, Array]:
    """Values of all replications by name, quantiles as ``response_p99`` and ``wait_p99``."""
    runs = {name: np.array([r.values[name] for r in results]) for name in results[0].values}
    for p in ps:
        runs[f"response_{label(p)}"] = np.array([r.response[p] for r in results])
        runs[f"wait_{label(p)}"] = np.array([r.wait[p] for r in results])
    return runs


def summarise_runs(
    spec: QueueSpec,
    results: Sequence[RunResult],
    ps: Sequence[float],
    *,
    stable: bool,
    offered_load: float,
    requests: int,
    warmup: int,
    level: float,
    theory: Expected | None,
    reached: bool | None,
    notes: Sequence[str],
) -> QueueResult:
    """Put intervals over replications.

    Parameters are those of `QueueResult`; `level` is that of every interval by itself.
    """
    runs = per_replication(results, ps)

    def interval(name: str) -> Interval:
        return mean_interval(runs[name], level)

    def measure(name: str) -> Measure:
        shown = ps if stable else ()
        return Measure(interval(f"{name}_mean"), {p: interval(f"{name}_{label(p)}") for p in shown})

    fcfs = spec.discipline == "fcfs"
    lengths = None
    if results[0].lengths.size:
        longest = max(r.lengths.size for r in results)
        lengths = np.mean([np.pad(r.lengths, (0, longest - r.lengths.size)) for r in results], axis=0)
    samples = tuple(r.samples for r in results if r.samples is not None)
    return QueueResult(
        spec=spec,
        stable=stable,
        offered_load=offered_load,
        replications=len(results),
        requests=requests,
        warmup=warmup,
        response=measure("response"),
        wait=measure("wait") if fcfs else None,
        no_wait=interval("no_wait") if fcfs else None,
        queue_length=interval("queue_length"),
        idle_probability=interval("idle"),
        lengths=lengths,
        theory=theory,
        runs=runs,
        samples=samples or None,
        reached=reached,
        notes=tuple(notes),
    )
