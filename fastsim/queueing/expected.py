"""Which formula, if any, answers a question that was simulated."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fastsim.errors import InputError
from fastsim.queueing import theory
from fastsim.queueing.arrivals import Poisson
from fastsim.queueing.laws import Deterministic, Exponential
from fastsim.queueing.spec import QueueSpec

__all__ = ["Expected", "expected"]


@dataclass(frozen=True)
class Expected:
    """What theory says, in the time unit of the sizes.

    Attributes
    ----------
    model : str
        Name of the formula.
    kind : str
        ``"exact"``, ``"limit"`` (infinitely many servers) or ``"approximation"``.
    response_mean, wait_mean : float or None
        Where the formula gives it; the wait under FCFS only.
    response, wait : dict of float to float
        Quantiles by probability, where there are any.
    """

    model: str
    kind: str
    response_mean: float | None = None
    wait_mean: float | None = None
    response: dict[float, float] | None = None
    wait: dict[float, float] | None = None


def expected(spec: QueueSpec, ps: Sequence[float] = ()) -> Expected | None:
    """Theory for a question, or None where there is none here.

    Parameters
    ----------
    spec : QueueSpec
        The question; servers of unequal speed have no formula unless there is one server.
    ps : sequence of float
        Probabilities of the quantiles wanted.

    Notes
    -----
    The periodic update limit is computed for exponential sizes only, and takes a second or two.
    """
    if not (spec.stable and spec.equal_speeds):
        return None
    try:
        return _find(spec, ps)
    except InputError:  # an infinite variance, or queues too long to compute
        return None


def _find(spec: QueueSpec, ps: Sequence[float]) -> Expected | None:
    name = "random" if spec.servers == 1 else spec.dispatcher.name
    if name == "weighted_random":
        name = "random"
    if spec.discipline == "ps":
        return _sharing(spec, name)
    if name == "random":
        return _one_server(spec, ps)
    if name in ("lwl", "central_queue") and spec.update == "live":
        return _one_queue(spec, ps)
    if not (isinstance(spec.arrivals, Poisson) and isinstance(spec.size, Exponential)):
        return None
    lam, mean = spec.arrivals.rate / spec.servers, spec.size.mean / float(spec.speeds[0])
    if name == "round_robin" and spec.dispatchers == 1:
        return _with_quantiles("E_k/M/1", theory.ErlangM1(lam, spec.servers, 1.0 / mean), ps)
    sampling = name == "jsq_d" and spec.replacement and not spec.memory
    if sampling and spec.update == "live":
        limit = theory.Supermarket(lam, spec.d, 1.0 / mean).response_mean
        return Expected("supermarket model", "limit", limit, limit - mean)
    if (sampling or name == "jsq") and spec.update == "periodic" and not spec.add_own:
        d = None if name == "jsq" else spec.d
        limit = theory.periodic_update(lam, spec.period, d, 1.0 / mean).response_mean
        return Expected("periodic update", "limit", limit, limit - mean)
    return None


def _sharing(spec: QueueSpec, name: str) -> Expected | None:
    if not isinstance(spec.arrivals, Poisson):
        return None
    lam = spec.arrivals.rate / spec.servers
    mean = spec.size.mean / float(spec.speeds[0])
    if name == "random":
        return Expected("M/G/1-PS", "exact", theory.MG1PS(lam, mean).response_mean)
    alike = isinstance(spec.size, Exponential) and spec.update == "live"
    if name == "jsq_d" and alike and spec.replacement and not spec.memory:
        return Expected(
            "supermarket model", "limit", theory.Supermarket(lam, spec.d, 1.0 / mean).response_mean
        )
    return None


def _one_server(spec: QueueSpec, ps: Sequence[float]) -> Expected | None:
    """One server, or many that arrivals are split over at random."""
    lam, speed = spec.arrivals.rate / spec.servers, float(spec.speeds[0])
    mean = spec.size.mean / speed
    if isinstance(spec.arrivals, Poisson):
        if isinstance(spec.size, Exponential):
            return _with_quantiles("M/M/1", theory.MM1(lam, 1.0 / mean), ps)
        if isinstance(spec.size, Deterministic):
            return _with_quantiles("M/D/1", theory.MD1(lam, mean), ps)
        general = theory.MG1(lam, mean, spec.size.second_moment / speed**2)
        return Expected("M/G/1", "exact", general.response_mean, general.wait_mean)
    if math.isnan(spec.arrivals.scv):
        return None
    split = 1.0 + (spec.arrivals.scv - 1.0) / spec.servers  # a renewal process thinned at random is one
    wait = theory.kingman(lam, mean, split, spec.size.scv)
    return Expected("Kingman", "approximation", wait + mean, wait)


def _one_queue(spec: QueueSpec, ps: Sequence[float]) -> Expected | None:
    lam, mean = spec.arrivals.rate, spec.size.mean / float(spec.speeds[0])
    if isinstance(spec.arrivals, Poisson) and isinstance(spec.size, Exponential):
        return _with_quantiles("M/M/c", theory.MMc(lam, 1.0 / mean, spec.servers), ps)
    if math.isnan(spec.arrivals.scv):
        return None
    wait = theory.allen_cunneen(lam, mean, spec.servers, spec.arrivals.scv, spec.size.scv)
    return Expected("Allen-Cunneen", "approximation", wait + mean, wait)


def _with_quantiles(model: str, queue: Any, ps: Sequence[float]) -> Expected:
    def at(quantile: Callable[[float], float]) -> dict[float, float]:
        return {p: quantile(p) for p in ps if p < 1.0}

    return Expected(
        model,
        "exact",
        queue.response_mean,
        queue.wait_mean,
        at(queue.response_quantile),
        at(queue.wait_quantile),
    )
