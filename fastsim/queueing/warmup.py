"""How much of the start of a run to leave out, and whether the run has a steady state at all."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastsim.errors import InputError
from fastsim.queueing import views
from fastsim.queueing.capacity import offered_load
from fastsim.queueing.run import Run
from fastsim.queueing.spec import QueueSpec
from fastsim.stats import FOR_THE_MEAN, common_warmup, run_length

Array = NDArray[np.float64]

_POINTS = 20_000  # of the averaged curve that MSER-5 looks at
_PILOT_MAX = 1_000_000  # requests of a pilot, unless the floor alone asks for more
_PILOTS_REQUESTS = 10_000_000  # of all pilots together, or of the only one
_FLOOR_MAX = 20_000_000
_REQUESTS_MAX = 15_000_000  # by default
_OVERLOAD_REQUESTS = 100_000  # enough to see work pile up
_VARIABILITY_MAX = 100.0  # an infinite variance has no memory to plan by


@dataclass(frozen=True)
class Settled:
    """What pilot runs say.

    Attributes
    ----------
    warmup : int
        Requests to leave out.
    long_enough : bool
        Whether the pilots settled within half of their length.
    stable : bool
        Whether less is offered than can be done.
    """

    warmup: int
    long_enough: bool
    stable: bool


def wanted_requests(spec: QueueSpec, ps: Sequence[float]) -> int:
    """Requests to measure in each replication so that bias does not spoil the coverage of what is reported.

    `fastsim.stats.run_length` for the mean, which is always reported, and for the quantile that is furthest
    out, on either side; of a trace all.
    """
    if spec.arrivals.count is not None:
        return spec.arrivals.count
    if not spec.stable:
        return _OVERLOAD_REQUESTS
    furthest = max(FOR_THE_MEAN, *(max(p, 1.0 - p) for p in ps), 0.0)
    return run_length(furthest, spec.utilisation, min(spec.variability, _VARIABILITY_MAX))


def default_requests(spec: QueueSpec, ps: Sequence[float]) -> int:
    """`wanted_requests` up to 15 million, but at least as many as are left out before (`least_warmup`)."""
    if spec.arrivals.count is not None:
        return spec.arrivals.count
    return max(min(wanted_requests(spec, ps), _REQUESTS_MAX), least_warmup(spec))


def least_warmup(spec: QueueSpec) -> int:
    """Requests that a queue needs to forget that it began empty, by its relaxation time.

    Returns
    -------
    int
        Arrivals in v / (k (1 - rho)^2) + 10 / (1 - rho) + 20 T mean service times, at most 20 million: v the
        variability (c_a^2 + c_s^2) / 2, k the number of servers if the dispatcher pools them (it looks at
        all, as they are), else 1, T the age of what it knows.

    Notes
    -----
    Time constants: Whitt, "Planning queueing simulations for heavy traffic", Management Science 35(11), 1989.
    A floor: pilot runs may say more.
    """
    if not spec.stable:
        return 0
    slack = 1.0 - spec.utilisation
    pooled = spec.dispatcher.rule in (views.FULL, views.IDLE) and spec.update == "live"
    variability = max(1.0, min(spec.variability, _VARIABILITY_MAX))
    time = variability / (slack**2 * (spec.servers if pooled else 1)) + 10.0 / slack
    time = time * spec.size.mean / float(spec.speeds.mean()) + 20.0 * spec.period
    return min(math.ceil(time * spec.arrivals.rate), _FLOOR_MAX)


def fit_to_trace(spec: QueueSpec, warmup: int, requests: int, *, insisted: bool) -> int:
    """Requests to measure: a trace has only so many.

    Raises
    ------
    InputError
        If the trace is too short for the warm-up, or for requests that are insisted on.
    """
    count = spec.arrivals.count
    if count is None or warmup + requests <= count:
        return requests
    if insisted or warmup >= count:
        raise InputError(f"warmup and requests are {warmup} and {requests}; the trace has {count} arrivals")
    return count - warmup


def settle(specs: QueueSpec | Sequence[QueueSpec], seed: int, requests: int) -> Settled:
    """Run pilots and see when their averaged response times settle (MSER-5).

    Parameters
    ----------
    specs : QueueSpec or sequence of QueueSpec
        The question; several get one truncation, that of the slowest to settle, so that all are judged on the
        same requests. Those without a steady state do not count, and of several `stable` tells whether all
        have one.
    seed : int
        Pilots are the beginnings of replications 0, 1, ...
    requests : int
        Planned a replication.
    """
    asked = [specs] if isinstance(specs, QueueSpec) else list(specs)
    steady = [spec for spec in asked if spec.stable]
    if not steady:
        return Settled(0, True, False)
    floor = max(least_warmup(spec) for spec in steady)
    length = max(min(requests + floor, _PILOT_MAX), 2 * floor)
    counts = [spec.arrivals.count for spec in steady if spec.arrivals.count is not None]
    length = min([length, *counts])
    pilots = max(1, min(5, _PILOTS_REQUESTS // length))
    step = max(1, length // _POINTS)
    curves = [[averaged(spec, seed, r, length, step) for r in range(pilots)] for spec in steady]
    stable = len(steady) == len(asked) and all(keeps_up(spec, seed) for spec in steady)
    if min(c.size for of_one in curves for c in of_one) < 10:
        return Settled(floor, True, stable)
    found = common_warmup(curves)
    return Settled(max(floor, found.requests * step), found.long_enough, stable)


def averaged(spec: QueueSpec, seed: int, replicate: int, length: int, step: int) -> Array:
    """Response times of the first `length` requests, averaged over every `step`, in order of arrival.

    Under processor sharing in order of departure, and without those that have not left by the last arrival.
    """
    means, rest = [], np.empty(0)
    for response in _responses(Run(spec, seed, replicate), length):
        rest = np.append(rest, response)
        whole = rest.size // step
        means.append(rest[: whole * step].reshape(whole, step).mean(axis=1))
        rest = rest[whole * step :]
    return np.concatenate(means)


def keeps_up(spec: QueueSpec, seed: int) -> bool:
    """Whether less is offered than can be done, slow servers not getting too much of it."""
    return spec.stable and offered_load(spec, seed) < 1.0


def _responses(run: Run, length: int) -> Iterator[Array]:
    for now in run.stretches(length):
        if run.spec.discipline == "fcfs":
            yield now.wait + now.work
        else:
            _, delay, need = run.departed()
            yield delay + need
