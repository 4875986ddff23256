"""One server, Poisson arrivals, sizes of any law: closed forms that `theory` hands on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fastsim.errors import InputError
from fastsim.queueing.checks import check_probability, check_rate, check_stable, check_variance

__all__ = ["MD1", "MG1", "MG1PS"]

_TERMS_MAX = 1_000_000  # a service-time multiple beyond which the M/D/1 wait law is refused


@dataclass(frozen=True)
class MG1:
    """M/G/1, FCFS: Poisson arrivals, any size law of finite variance.

    Attributes
    ----------
    arrival_rate : float
        Per time unit.
    service_mean, service_second_moment : float
        E[S] and E[S^2].

    Notes
    -----
    The Pollaczek-Khinchine formula, exact in steady state. Source: Harchol-Balter, Performance Modeling and
    Design of Computer Systems, chapter 23.
    """

    arrival_rate: float
    service_mean: float
    service_second_moment: float

    def __post_init__(self) -> None:
        check_rate("arrival_rate", self.arrival_rate)
        check_rate("service_mean", self.service_mean)
        check_variance("service_second_moment", self.service_second_moment)
        check_stable(self.utilisation)

    @property
    def utilisation(self) -> float:
        """Fraction of time the server is busy."""
        return self.arrival_rate * self.service_mean

    @property
    def wait_mean(self) -> float:
        """Mean time before service, lambda E[S^2] / (2 (1 - rho))."""
        return self.arrival_rate * self.service_second_moment / (2.0 * (1.0 - self.utilisation))

    @property
    def response_mean(self) -> float:
        """Mean time in system."""
        return self.wait_mean + self.service_mean

    @property
    def queue_length_mean(self) -> float:
        """Mean number in system."""
        return self.arrival_rate * self.response_mean

    @property
    def idle_probability(self) -> float:
        """Fraction of time the server is idle, and probability of no wait."""
        return 1.0 - self.utilisation


class MD1(MG1):
    """M/D/1, FCFS: Poisson arrivals, constant sizes.

    Parameters
    ----------
    arrival_rate : float
        Per time unit.
    service_time : float
        The constant size.

    Notes
    -----
    Exact in steady state. The law of the wait is Franx's, whose terms are all positive, where Crommelin's
    series alternates and loses its digits at high load. Source: Franx, "A simple solution for the M/D/c
    waiting time distribution", Operations Research Letters 29 (2001).
    """

    def __init__(self, arrival_rate: float, service_time: float = 1.0) -> None:
        super().__init__(arrival_rate, service_time, service_time * service_time)

    def wait_cdf(self, t: float) -> float:
        """P(wait <= t)."""
        if t < 0.0:
            return 0.0
        k = int(t / self.service_mean) + 1
        if k > _TERMS_MAX:
            raise InputError(f"t is {t:g}; the law of the wait is computed up to {_TERMS_MAX} service times")
        # in (0, rho]: the Poisson weights die out at once
        x = self.arrival_rate * (k * self.service_mean - t)
        weight, total = math.exp(-x), 0.0
        waiting = _waiting_cdf(self.utilisation, 1 << k.bit_length())
        for j in range(k):
            total += weight * float(waiting[k - 1 - j])
            weight *= x / (j + 1)
            if weight < 1e-18:
                break
        return total

    def wait_quantile(self, p: float) -> float:
        """p-quantile of the wait, by bisection of its law to 1e-12 of a service time."""
        check_probability(p)
        if p <= self.wait_cdf(0.0):
            return 0.0
        low, high = 0.0, self.service_mean
        while self.wait_cdf(high) < p:
            low, high = high, 2.0 * high
        while high - low > 1e-12 * max(self.service_mean, high):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if self.wait_cdf(middle) < p else (low, middle)
        return high

    def response_quantile(self, p: float) -> float:
        """p-quantile of the time in system: the wait and one service."""
        return self.wait_quantile(p) + self.service_mean


@lru_cache(maxsize=16)
def _waiting_cdf(rho: float, count: int) -> NDArray[np.float64]:
    """P(at most j wait) in M/D/1 for j < count, from the law of the number in system by level crossing."""
    above = _poisson_tails(rho, count + 1)
    p = np.zeros(count + 1)
    p[0] = 1.0 - rho
    for j in range(1, count + 1):
        reach = min(j - 1, above.size - 1)  # tails beyond are below the last bit
        inner = float(np.dot(p[j - reach : j], above[reach:0:-1])) if reach else 0.0
        outer = p[0] * above[j - 1] if j - 1 < above.size else 0.0
        p[j] = (outer + inner) * math.exp(rho)
    return np.cumsum(p)[1:]


def _poisson_tails(mean: float, count: int) -> NDArray[np.float64]:
    """P(X > k) for k = 0, 1, ... while above 1e-30, at most `count` of them, summed from the small end."""
    weights = [math.exp(-mean)]
    while (weights[-1] > 1e-32 or len(weights) < 3) and len(weights) < 200:
        weights.append(weights[-1] * mean / len(weights))
    tails = np.cumsum(np.array(weights[:0:-1]))[::-1]
    return tails[tails > 1e-30][:count]


@dataclass(frozen=True)
class MG1PS:
    """M/G/1 with processor sharing.

    Attributes
    ----------
    arrival_rate : float
        Per time unit.
    service_mean : float
        E[S]; the mean depends on nothing else of the size law (insensitivity), its variance may be infinite.

    Notes
    -----
    Exact in steady state. Source: Harchol-Balter, Performance Modeling and Design of Computer Systems,
    chapter 30.
    """

    arrival_rate: float
    service_mean: float = 1.0

    def __post_init__(self) -> None:
        check_rate("arrival_rate", self.arrival_rate)
        check_rate("service_mean", self.service_mean)
        check_stable(self.utilisation)

    @property
    def utilisation(self) -> float:
        """Fraction of time the server is busy."""
        return self.arrival_rate * self.service_mean

    @property
    def response_mean(self) -> float:
        """Mean time in system, E[S] / (1 - rho)."""
        return self.conditional_response_mean(self.service_mean)

    @property
    def queue_length_mean(self) -> float:
        """Mean number in system, rho / (1 - rho)."""
        return self.utilisation / (1.0 - self.utilisation)

    def conditional_response_mean(self, size: float) -> float:
        """Mean time in system of a request of the given size: every request sees the same slowdown."""
        return size / (1.0 - self.utilisation)
