"""The highest rate that servers behind a dispatcher can finish, by formula or measured."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fastsim.queueing import views
from fastsim.queueing.arrivals import Poisson

if TYPE_CHECKING:
    from fastsim.queueing.spec import QueueSpec

_REQUESTS = 400_000  # of a run that measures loads
_PRECISION = 0.002  # of the rate at which a server is fully loaded


def known_capacity(spec: QueueSpec) -> float | None:
    """The capacity by formula.

    Returns
    -------
    float or None
        Arrivals per time unit that are the limit of those that can be kept up with; None where no formula is
        known.

    Notes
    -----
    A dispatcher that reads no queue sends each server a fixed part of the work: the first server whose load
    becomes 1 sets the limit. Servers that are alike get equal parts from any dispatcher. One that looks at
    all queues, however late, uses all servers fully. One that looks at d random ones must leave to the k
    slowest what falls on them alone: rate * P(all d among the k) is less than their speeds together, for
    every k; with a memory of the best one seen it uses all servers again. No formula is known for join the
    idle queue with unequal speeds, whose slow servers get more the less often another one is idle.

    Sources: Foss and Chernova, "On the stability of a partially accessible multi-station queue with
    state-dependent routing", Queueing Systems 29 (1998); Shah and Prabhakar, "The use of memory in randomized
    load balancing", ISIT 2002.
    """
    if spec.dispatcher.score is None:
        return None if spec.loads is None else spec.arrivals.rate / float(spec.loads.max())
    work_rate = np.cumsum(np.sort(spec.speeds)) / spec.size.mean  # of the k slowest
    rule = spec.dispatcher.rule
    if spec.equal_speeds or rule == views.FULL or (rule == views.SAMPLE and spec.memory):
        return float(work_rate[-1])
    if rule != views.SAMPLE:
        return None
    chance = _all_among_slowest(spec.servers, spec.d, replacement=spec.replacement)
    return float(np.min(work_rate[chance > 0.0] / chance[chance > 0.0]))


def _all_among_slowest(servers: int, d: int, *, replacement: bool) -> NDArray[np.float64]:
    """P(all d random servers are among the k slowest), for k = 1, ..., servers."""
    k = np.arange(1, servers + 1, dtype=np.float64)
    if replacement:
        return (k / servers) ** d
    chance = np.ones(servers)
    for taken in range(d):
        chance *= np.maximum(k - taken, 0.0) / (servers - taken)
    return chance


def capacity(spec: QueueSpec, seed: int = 0) -> float:
    """The capacity, measured if no formula is known.

    Parameters
    ----------
    spec : QueueSpec
        Its rate does not count.
    seed : int
        Of the runs that measure.

    Returns
    -------
    float
        Arrivals per time unit.
    """
    known = spec.capacity
    return _measured(spec, seed) if known is None else known


def offered_load(spec: QueueSpec, seed: int = 0) -> float:
    """Arrival rate over capacity; at 1 and above there is no steady state."""
    return spec.arrivals.rate / capacity(spec, seed)


@lru_cache(maxsize=256)
def _measured(spec: QueueSpec, seed: int) -> float:
    """The rate at which a server is sent as much work as it can do; at 0.2 % of all that servers can do."""
    from scipy.optimize import brentq

    if spec.dispatcher.score is None:
        return spec.arrivals.rate / float(sent_loads(spec, seed).max())
    if spec.arrivals.count is not None:
        spec = replace(spec, arrivals=Poisson(spec.arrivals.rate))
    most = float(spec.speeds.sum()) / spec.size.mean

    def excess(rate: float) -> float:
        return float(sent_loads(replace(spec, arrivals=spec.arrivals.at_rate(rate)), seed).max()) - 1.0

    if excess(most) <= 0.0:
        return most
    return float(brentq(excess, 0.01 * most, most, xtol=_PRECISION * most))  # pyright: ignore


def sent_loads(spec: QueueSpec, seed: int, requests: int = _REQUESTS) -> NDArray[np.float64]:
    """Work that a run sends to each server, over what the server can do in that time."""
    from fastsim.queueing.run import Run

    run = Run(spec, seed, 0)
    sent = np.zeros(spec.servers)
    for now in run.stretches(min(requests, spec.arrivals.count or requests)):
        sent += np.bincount(now.target, weights=now.work, minlength=spec.servers)
    return sent / (run.clock * spec.speeds)


__all__ = ["capacity", "known_capacity", "offered_load", "sent_loads"]
