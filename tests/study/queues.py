"""Queues simple enough that their answers are known, for the studies of our statistics."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from fastsim.queueing import QueueSpec, make_spec
from fastsim.queueing.expected import expected
from fastsim.queueing.run import Run

Floats = npt.NDArray[np.float64]

SIZES = {
    "exponential": "exponential",
    "deterministic": "deterministic",
    "hyperexponential": "hyperexponential(cv=2)",
}


def run(
    rng: np.random.Generator, n: int, utilisation: float, *, servers: int = 1, sizes: str = "exponential"
) -> tuple[Floats, Floats]:
    """Arrival and departure times of n requests from an empty start; Poisson arrivals, mean service 1 s.

    All servers share one queue, first come first served. `rng` gives the seed of the simulator's streams.
    """
    simulated = Run(question(utilisation, servers, sizes), int(rng.integers(2**62)), 0)
    arrival_s, done_s = np.empty(n), np.empty(n)
    start = 0
    for now in simulated.stretches(n):
        end = start + now.at.size
        arrival_s[start:end] = now.at
        done_s[start:end] = now.at + now.wait + now.work
        start = end
    return arrival_s, done_s


@lru_cache
def question(utilisation: float, servers: int = 1, sizes: str = "exponential") -> QueueSpec:
    """One queue before all servers."""
    return make_spec(
        servers, "central_queue", utilisation=utilisation, size=SIZES[sizes], allow_unstable=True
    )


def truth_s(
    utilisation: float, servers: int = 1, sizes: str = "exponential", p: float | None = None
) -> float:
    """Mean response time, or the quantile of probability p, that theory knows exactly; mean service 1 s."""
    known = expected(question(utilisation, servers, sizes), () if p is None else (p,))
    assert known is not None
    assert known.kind == "exact"
    value = known.response_mean if p is None else (known.response or {})[p]
    assert value is not None
    return value
