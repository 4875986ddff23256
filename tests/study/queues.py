"""Queues simple enough that their answers are known, for the studies of our statistics."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from fastsim._jit import kernel

Floats = npt.NDArray[np.float64]


@kernel
def _serve(arrival_s, service_s, free_s, done_s):
    """First come first served: each request takes the server that frees first."""
    for i in range(arrival_s.size):
        first = 0
        for k in range(1, free_s.size):
            if free_s[k] < free_s[first]:
                first = k
        free_s[first] = max(arrival_s[i], free_s[first]) + service_s[i]
        done_s[i] = free_s[first]


def fcfs_done_s(arrival_s: Floats, service_s: Floats, servers: int) -> Floats:
    """Departure times of a first-come first-served queue that starts empty."""
    done_s = np.empty_like(arrival_s)
    _serve(arrival_s, service_s, np.zeros(servers), done_s)
    return done_s


def run(
    rng: np.random.Generator, n: int, utilisation: float, *, servers: int = 1, sizes: str = "exponential"
) -> tuple[Floats, Floats]:
    """Arrival and departure times of n requests from an empty start; Poisson arrivals, mean service 1 s."""
    arrival_s = np.cumsum(rng.standard_exponential(n)) / (utilisation * servers)
    return arrival_s, fcfs_done_s(arrival_s, SIZES[sizes](rng, n), servers)


def _hyperexponential(rng: np.random.Generator, n: int) -> Floats:
    """Two-phase with balanced means, E[S] = 1, squared coefficient of variation 4 (E[S^2] = 5)."""
    p = (1 + math.sqrt(3 / 5)) / 2
    return rng.standard_exponential(n) / (2 * np.where(rng.random(n) < p, p, 1 - p))


SIZES = {
    "exponential": lambda rng, n: rng.standard_exponential(n),
    "deterministic": lambda rng, n: np.ones(n),
    "hyperexponential": _hyperexponential,
}
SECOND_MOMENT = {"exponential": 2.0, "deterministic": 1.0, "hyperexponential": 5.0}  # E[S^2] in s^2


def mm1_quantile_s(utilisation: float, p: float) -> float:
    """Response-time quantile of M/M/1 with mean service 1 s: -ln(1 - p) / (mu - lambda)."""
    return -math.log(1 - p) / (1 - utilisation)


def mg1_mean_s(utilisation: float, sizes: str) -> float:
    """Mean response time of M/G/1 (Pollaczek-Khinchine), mean service 1 s."""
    return 1 + utilisation * SECOND_MOMENT[sizes] / (2 * (1 - utilisation))


def mmc_mean_s(servers: int, utilisation: float) -> float:
    """Mean response time of M/M/c with mean service 1 s: 1 + C / (c (1 - rho)), C by Erlang B's recursion."""
    load, blocking = servers * utilisation, 1.0
    for k in range(1, servers + 1):
        blocking = load * blocking / (k + load * blocking)
    waiting = blocking / (1 - utilisation * (1 - blocking))
    return 1 + waiting / (servers * (1 - utilisation))


def variability(sizes: str) -> float:
    """(c_a^2 + c_s^2) / 2 for Poisson arrivals and mean size 1 s."""
    return (1 + SECOND_MOMENT[sizes] - 1) / 2
