"""The fullest of m bins: the exact law for one choice, Poisson estimates for several, and asymptotics."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastsim.errors import InputError

__all__ = ["MaxLaw", "asymptotic_max", "from_tails", "one_choice_max"]

Array = NDArray[np.float64]

_NEGLIGIBLE = 1e-16
_WINDOW = 14.0  # standard deviations; a normal law has exp(-98) beyond on either side


@dataclass(frozen=True)
class MaxLaw:
    """Law of the number of balls in the fullest bin.

    Attributes
    ----------
    first : int
        Smallest value with a probability above 1e-16.
    probability : float64[k]
        P(max = first), P(max = first + 1), ...
    """

    first: int
    probability: Array

    @property
    def mean(self) -> float:
        """Mean number of balls in the fullest bin."""
        return self.first + float(self.probability @ np.arange(self.probability.size))

    def pmf(self, k: int) -> float:
        """P(max = k)."""
        at = k - self.first
        return float(self.probability[at]) if 0 <= at < self.probability.size else 0.0

    def quantile(self, p: float) -> int:
        """Smallest k with P(max <= k) >= p."""
        at = int(np.searchsorted(np.cumsum(self.probability), p - _NEGLIGIBLE))
        return self.first + min(at, self.probability.size - 1)


def one_choice_max(balls: int, bins: int) -> MaxLaw:
    """Exact law of the fullest bin after each ball chose one bin at random.

    Parameters
    ----------
    balls, bins : int
        At least 1 each; computed in time proportional to the spread of the fullest bin, so a million is
        quick.

    Returns
    -------
    MaxLaw
        Probabilities to a relative error of about n 1e-16 and an absolute one of 1e-13.

    Raises
    ------
    InputError
        For no balls or no bins.

    Notes
    -----
    P(max <= k) = n! / m^n [z^n] (sum over j <= k of z^j / j!)^m. The coefficient is a point probability of a
    sum of m independent bins, each a Poisson number cut at k and tilted so that the sum has mean n; the
    discrete Fourier transform of its characteristic function gives it without cancellation. No approximation
    but rounding and a window of 14 standard deviations. Method: Kolchin, Sevast'yanov and Chistyakov, Random
    Allocations, 1978 (generating function); tilting as in Daniels, "Saddlepoint approximations in
    statistics", 1954.
    """
    for name, value in (("balls", balls), ("bins", bins)):
        if value < 1:
            raise InputError(f"{name} is {value}; at least 1 is needed")
    from scipy.special import bdtrc

    k = _smallest(lambda k: _max_at_most(k, balls, bins) >= _NEGLIGIBLE, -(-balls // bins), balls)
    first, cdf = k, [_max_at_most(k, balls, bins)]
    # as long as some bin may hold more
    while k < balls and bins * float(bdtrc(k, balls, 1.0 / bins)) > 1e-13:
        k += 1
        cdf.append(_max_at_most(k, balls, bins))
    cdf[-1] = 1.0
    return MaxLaw(first, np.diff(np.maximum.accumulate(cdf), prepend=0.0))


def _smallest(holds: Callable[[int], bool], low: int, high: int) -> int:
    """Smallest k in [low, high] for which `holds`, which it does from there on: steps, then bisection."""
    step = 1
    while low + step < high and not holds(low + step):
        low, step = low + step, 2 * step
    high = min(high, low + step)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low


def _max_at_most(k: int, balls: int, bins: int) -> float:
    """P(no bin holds more than k)."""
    if k >= balls:
        return 1.0
    if k * bins < balls:
        return 0.0
    if k * bins == balls:  # only one arrangement is left
        return math.exp(_log_factorial(balls) - bins * (_log_factorial(k) + k * math.log(bins)))
    mean = balls / bins
    j = np.arange(max(0, int(mean - 12.0 * math.sqrt(mean) - 30.0)), k + 1)  # no weight to speak of below
    log_factorials = _log_factorials(k)[j]
    log_tilt = _log_tilt(mean, j, log_factorials)
    log_terms = j * log_tilt - log_factorials
    top = float(log_terms.max())
    law = np.exp(log_terms - top)
    norm = float(law.sum())
    hits = _sum_hits(law / norm, balls - bins * int(j[0]), bins)
    log_weight = _log_factorial(balls) - balls * (math.log(bins) + log_tilt) + bins * (top + math.log(norm))
    return min(1.0, math.exp(log_weight) * hits)


def _log_tilt(mean: float, j: NDArray[np.int64], log_factorials: Array) -> float:
    """Logarithm of the Poisson parameter at which the law on the values j has that mean, by bisection."""

    def cut_mean(log_z: float) -> float:
        terms = j * log_z - log_factorials
        weights = np.exp(terms - terms.max())
        return float(weights @ j / weights.sum())

    low, high = math.log(mean) - 1e-9, math.log(mean) + 1.0
    while cut_mean(high) < mean:
        high += high - low
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if cut_mean(middle) < mean else (low, middle)
    return high


def _sum_hits(law: Array, total: int, count: int) -> float:
    """P(sum of `count` independent draws = total), where `total` is the mean."""
    j = np.arange(law.size)
    mean = float(law @ j)
    deviation = math.sqrt(count * float(law @ (j - mean) ** 2))
    width = 1 << math.ceil(math.log2(max(law.size, _WINDOW * deviation, 16.0)))
    transform = np.fft.rfft(law, width)
    # centring keeps the phase of the power small, hence accurate
    angles = 2.0 * np.pi * np.arange(transform.size) / width
    centred = transform * np.exp(1j * angles * (total / count))
    hits = (centred**count).real
    return float(hits[0] + 2.0 * hits[1:-1].sum() + hits[-1]) / width


def _log_factorials(k: int) -> Array:
    return np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, k + 1)))])


def _log_factorial(n: int) -> float:
    return math.lgamma(n + 1.0)


def from_tails(tails: Array, bins: int) -> MaxLaw:
    """Estimated law of the fullest bin from the fluid limit's fractions of bins with at least i balls.

    Parameters
    ----------
    tails : float64[k]
        Fractions for i = 0, 1, ... (`fluid.balls_tails`).
    bins : int
        m.

    Returns
    -------
    MaxLaw
        P(max < i) = exp(-m s_i): bins that full are taken as rare and independent.

    Notes
    -----
    An approximation: good where m s_i is not small compared with the fluctuation of the levels below; the
    simulation stands beside it.
    """
    below = np.exp(-bins * np.append(tails[1:], 0.0))
    law = np.diff(below, prepend=0.0)
    first = int(np.flatnonzero(law > _NEGLIGIBLE)[0])
    last = int(np.flatnonzero(law > 0.0)[-1])
    return MaxLaw(first, law[first : last + 1])


def asymptotic_max(bins: int, choices: int) -> float:
    """Leading term of the fullest bin for as many balls as bins.

    Parameters
    ----------
    bins : int
        m = n, at least 3.
    choices : int
        d, at least 1.

    Returns
    -------
    float
        ln n / ln ln n for one choice, ln ln n / ln d for d; the error is a factor 1 + o(1) or a term O(1),
        and far from small at any practical n.

    Raises
    ------
    InputError
        For fewer than three bins (ln ln n must be positive) or no choice.

    Notes
    -----
    Source: Azar, Broder, Karlin and Upfal, "Balanced allocations", SIAM Journal on Computing 29(1), 1999.
    """
    if bins < 3:
        raise InputError(f"bins is {bins}; the asymptotic form needs at least 3")
    if choices < 1:
        raise InputError(f"choices is {choices}; at least 1 is needed")
    inner = math.log(math.log(bins))
    return math.log(bins) / inner if choices == 1 else inner / math.log(choices)
