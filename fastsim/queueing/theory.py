"""Closed forms of queueing theory that the simulator is held against.

Any time unit will do, as long as rates are per the same unit that means are in. Every class refuses an
unstable queue (utilisation at or above one) with `InputError`, and a formula that needs a finite variance
refuses a law without one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from fastsim.errors import InputError
from fastsim.queueing.checks import check_probability, check_rate, check_stable, check_variance
from fastsim.queueing.fluid import PeriodicUpdate, Supermarket, periodic_update
from fastsim.queueing.mg1 import MD1, MG1, MG1PS

__all__ = [
    "MD1",
    "MG1",
    "MG1PS",
    "MM1",
    "ErlangM1",
    "MMc",
    "PeriodicUpdate",
    "Supermarket",
    "allen_cunneen",
    "erlang_c",
    "kingman",
    "periodic_update",
]


@dataclass(frozen=True)
class MM1:
    """M/M/1, FCFS: Poisson arrivals, exponential sizes, one server.

    Attributes
    ----------
    arrival_rate, service_rate : float
        Per time unit; arrival_rate < service_rate.

    Notes
    -----
    Exact in steady state. The mean response time holds under processor sharing as well, the quantiles do not.
    Source: Harchol-Balter, Performance Modeling and Design of Computer Systems, chapter 13 and section 27.
    """

    arrival_rate: float
    service_rate: float = 1.0

    def __post_init__(self) -> None:
        check_rate("arrival_rate", self.arrival_rate)
        check_rate("service_rate", self.service_rate)
        check_stable(self.utilisation)

    @property
    def utilisation(self) -> float:
        """Fraction of time the server is busy."""
        return self.arrival_rate / self.service_rate

    @property
    def response_mean(self) -> float:
        """Mean time in system, 1 / (mu - lambda)."""
        return 1.0 / (self.service_rate - self.arrival_rate)

    @property
    def wait_mean(self) -> float:
        """Mean time before service, rho / (mu - lambda)."""
        return self.utilisation * self.response_mean

    @property
    def queue_length_mean(self) -> float:
        """Mean number in system, rho / (1 - rho)."""
        return self.utilisation / (1.0 - self.utilisation)

    @property
    def idle_probability(self) -> float:
        """Fraction of time the server is idle, and probability of no wait."""
        return 1.0 - self.utilisation

    def response_quantile(self, p: float) -> float:
        """p-quantile of the time in system, which is exponential with rate mu - lambda."""
        check_probability(p)
        return -math.log1p(-p) * self.response_mean

    def wait_quantile(self, p: float) -> float:
        """p-quantile of the wait: P(W > t) = rho exp(-(mu - lambda) t), an atom at zero."""
        check_probability(p)
        return max(0.0, math.log(self.utilisation / (1.0 - p)) * self.response_mean)


def erlang_c(servers: int, offered_load: float) -> float:
    """Probability that an arrival to M/M/c waits.

    Parameters
    ----------
    servers : int
        c, at least 1.
    offered_load : float
        lambda / mu, in servers; below c.

    Returns
    -------
    float
        Erlang's C formula, by the recursion of the B formula, which neither overflows nor cancels.

    Raises
    ------
    InputError
        For fewer than one server, a load that is not positive, or one of at least c.
    """
    if servers < 1:
        raise InputError(f"servers is {servers}; at least 1 is needed")
    check_rate("offered_load", offered_load)
    check_stable(offered_load / servers)
    blocking = 1.0
    for c in range(1, servers + 1):
        blocking = offered_load * blocking / (c + offered_load * blocking)
    return blocking / (1.0 - offered_load / servers * (1.0 - blocking))


@dataclass(frozen=True)
class MMc:
    """M/M/c, FCFS: one queue before c equal servers.

    Attributes
    ----------
    arrival_rate, service_rate : float
        Of the whole system, and of one server, per time unit.
    servers : int
        c.

    Notes
    -----
    Exact in steady state. Source: Harchol-Balter, Performance Modeling and Design of Computer Systems,
    chapter 14; Gross, Shortle, Thompson and Harris, Fundamentals of Queueing Theory, section 2.3 (law of the
    response time).
    """

    arrival_rate: float
    service_rate: float
    servers: int

    def __post_init__(self) -> None:
        check_rate("arrival_rate", self.arrival_rate)
        check_rate("service_rate", self.service_rate)
        if self.servers < 1:
            raise InputError(f"servers is {self.servers}; at least 1 is needed")
        check_stable(self.utilisation)

    @property
    def offered_load(self) -> float:
        """Mean number of busy servers, lambda / mu."""
        return self.arrival_rate / self.service_rate

    @property
    def utilisation(self) -> float:
        """Load a server."""
        return self.offered_load / self.servers

    @cached_property
    def wait_probability(self) -> float:
        """Probability of a wait above zero (Erlang C)."""
        return erlang_c(self.servers, self.offered_load)

    @property
    def wait_mean(self) -> float:
        """Mean time before service, C / (c mu - lambda)."""
        return self.wait_probability / self._drain_rate

    @property
    def response_mean(self) -> float:
        """Mean time in system."""
        return self.wait_mean + 1.0 / self.service_rate

    @property
    def queue_length_mean(self) -> float:
        """Mean number in system, in service or not."""
        return self.arrival_rate * self.response_mean

    def wait_quantile(self, p: float) -> float:
        """p-quantile of the wait: P(W > t) = C exp(-(c mu - lambda) t), an atom at zero."""
        check_probability(p)
        return max(0.0, math.log(self.wait_probability / (1.0 - p)) / self._drain_rate)

    def response_tail(self, t: float) -> float:
        """P(time in system > t): the wait is independent of the exponential service that follows."""
        if t <= 0.0:
            return 1.0
        mu = self.service_rate
        gap = self._drain_rate - mu  # of the two exponential rates; the limit at zero is a double root
        extra = t if abs(gap) * t < 1e-12 else -math.expm1(-gap * t) / gap
        return math.exp(-mu * t) * (1.0 + self.wait_probability * mu * extra)

    def response_quantile(self, p: float) -> float:
        """p-quantile of the time in system, by bisection of its tail to the last bit."""
        check_probability(p)
        low, high = 0.0, 1.0 / self.service_rate
        while self.response_tail(high) > 1.0 - p:
            low, high = high, 2.0 * high
        while True:
            middle = 0.5 * (low + high)
            if not low < middle < high:
                return high
            if self.response_tail(middle) > 1.0 - p:
                low = middle
            else:
                high = middle

    @property
    def _drain_rate(self) -> float:
        return self.servers * self.service_rate - self.arrival_rate


@dataclass(frozen=True)
class ErlangM1:
    """E_k/M/1, FCFS: gaps of k exponential phases, exponential sizes; a server fed round robin by k.

    Attributes
    ----------
    arrival_rate, service_rate : float
        Of this one server, per time unit.
    phases : int
        k; 1 is M/M/1. Round robin over k servers gives each every k-th arrival of a Poisson process.

    Notes
    -----
    Exact in steady state. Source: Gross, Shortle, Thompson and Harris, Fundamentals of Queueing Theory,
    section 5.3 (GI/M/1): an arrival finds j requests with probability (1 - s) s^j, s = A(mu (1 - s)) with A
    the transform of the gaps, and the time in system is exponential with rate mu (1 - s).
    """

    arrival_rate: float
    phases: int
    service_rate: float = 1.0

    def __post_init__(self) -> None:
        check_rate("arrival_rate", self.arrival_rate)
        check_rate("service_rate", self.service_rate)
        if self.phases < 1:
            raise InputError(f"phases is {self.phases}; at least 1 is needed")
        check_stable(self.arrival_rate / self.service_rate)

    @cached_property
    def wait_probability(self) -> float:
        """s, the probability that an arrival finds the server busy: the root below 1, by bisection."""
        rho, k = self.arrival_rate / self.service_rate, self.phases
        low, high = 0.0, rho  # less variable gaps than Poisson's never make more arrivals wait
        for _ in range(200):
            s = 0.5 * (low + high)
            above = -k * math.log1p((1.0 - s) / (k * rho)) > math.log(s) if s > 0.0 else True
            low, high = (s, high) if above else (low, s)
        return high

    @property
    def response_mean(self) -> float:
        """Mean time in system."""
        return 1.0 / (self.service_rate * (1.0 - self.wait_probability))

    @property
    def wait_mean(self) -> float:
        """Mean time before service."""
        return self.wait_probability * self.response_mean

    def response_quantile(self, p: float) -> float:
        """p-quantile of the time in system."""
        check_probability(p)
        return -math.log1p(-p) * self.response_mean

    def wait_quantile(self, p: float) -> float:
        """p-quantile of the wait, which has an atom at zero."""
        check_probability(p)
        return max(0.0, math.log(self.wait_probability / (1.0 - p)) * self.response_mean)


def kingman(arrival_rate: float, service_mean: float, arrival_scv: float, service_scv: float) -> float:
    """Approximate mean wait of G/G/1, FCFS.

    Parameters
    ----------
    arrival_rate, service_mean : float
        Per time unit, and in it.
    arrival_scv, service_scv : float
        Squared coefficients of variation of gaps and sizes, finite.

    Returns
    -------
    float
        rho / (1 - rho) (c_a^2 + c_s^2) / 2 E[S].

    Notes
    -----
    Exact for M/G/1, asymptotically exact as rho -> 1, an approximation else (renewal arrivals).
    Source: Kingman, "The single server queue in heavy traffic", Proc. Cambridge Philosophical Society 57
    (1961).
    """
    return allen_cunneen(arrival_rate, service_mean, 1, arrival_scv, service_scv)


def allen_cunneen(
    arrival_rate: float, service_mean: float, servers: int, arrival_scv: float, service_scv: float
) -> float:
    """Approximate mean wait of G/G/c, FCFS.

    Parameters
    ----------
    arrival_rate, service_mean : float
        Of the whole system per time unit, and of one service in it.
    servers : int
        c.
    arrival_scv, service_scv : float
        Squared coefficients of variation of gaps and sizes, finite.

    Returns
    -------
    float
        The wait of M/M/c times (c_a^2 + c_s^2) / 2.

    Notes
    -----
    Exact for M/M/c and M/G/1; for M/G/c usually within ten per cent at high load and c_s^2 near one, poor for
    heavy tails. Source: Allen, Probability, Statistics, and Queueing Theory, 2nd ed., section 6.2.
    """
    check_rate("service_mean", service_mean)
    check_variance("arrival_scv", arrival_scv)
    check_variance("service_scv", service_scv)
    markov = MMc(arrival_rate, 1.0 / service_mean, servers)
    return markov.wait_mean * 0.5 * (arrival_scv + service_scv)
