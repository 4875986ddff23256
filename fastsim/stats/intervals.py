"""Confidence intervals over independent replications, and the order statistics they are made of."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsim.errors import InputError


@dataclass(frozen=True, slots=True)
class Interval:
    """A point estimate and its two-sided confidence interval.

    Attributes
    ----------
    value, low, high : float
        Estimate and limits, in the unit of the data. With a single replication nothing is known about the
        spread, and the limits are infinite.
    n : int
        Independent values (replications, batches or samples) behind it.
    level : float
        Nominal probability that the interval covers the truth.
    """

    value: float
    low: float
    high: float
    n: int
    level: float = 0.95

    @property
    def half_width(self) -> float:
        """Half of the interval's length, in the unit of the data."""
        return (self.high - self.low) / 2

    @property
    def relative_half_width(self) -> float:
        """Half-width as a fraction of the absolute estimate; infinite where the estimate is zero."""
        if self.half_width == 0.0:
            return 0.0
        return self.half_width / abs(self.value) if self.value else math.inf

    def contains(self, truth: float) -> bool:
        """Whether `truth` lies inside the closed interval."""
        return self.low <= truth <= self.high


@dataclass(frozen=True, slots=True)
class PairedInterval(Interval):
    """An interval for a comparison of two systems fed the same random numbers.

    Attributes
    ----------
    vrf : float
        Variance reduction factor (S_a^2 + S_b^2) / S_d^2: how many times more replications independent runs
        would have needed for the same half-width. Below 1 the common random numbers are out of step. Infinite
        where the differences do not vary at all, NaN where neither system varies or there is one replication.
    """

    vrf: float = math.nan


def mean_interval(values: ArrayLike, level: float = 0.95) -> Interval:
    """Student-t interval for the mean of independent, identically distributed values.

    Parameters
    ----------
    values : array_like, shape (n,)
        One value a replication (a mean, a quantile, any statistic), finite.
    level : float
        Nominal coverage, in (0, 1).

    Returns
    -------
    Interval
        mean +- t_{(1+level)/2, n-1} S / sqrt(n), in the unit of `values`; infinite limits for n = 1.

    Raises
    ------
    InputError
        No values, values that are not finite, or a level outside (0, 1).

    Notes
    -----
    Exact for normal values; for replication statistics it leans on the central limit theorem within a
    replication, so a replication should hold many requests. Not for correlated batches of one run. Source:
    Law, Simulation Modeling and Analysis, 5th ed., section 9.4.1.
    """
    x = finite_values(values, "values")
    center = float(x.mean())
    half = t_quantile(level, x.size - 1) * standard_error(x)
    return Interval(center, center - half, center + half, x.size, level)


def skewness_adjusted(values: ArrayLike, level: float = 0.95) -> Interval:
    """Student-t interval for a mean, adjusted for the skewness of the values.

    Parameters
    ----------
    values : array_like, shape (n,)
        One value a replication, independent and identically distributed, finite.
    level : float
        Nominal coverage, in (0, 1).

    Returns
    -------
    Interval
        About the mean and longer on the side of the longer tail; that of `mean_interval` for values without
        skewness.

    Raises
    ------
    InputError
        As `mean_interval`.

    Notes
    -----
    With T the t statistic and a = g / sqrt(n), g the values' skewness m_3 / m_2^(3/2), the statistic

        T + a T^2 / 3 + a^2 T^3 / 27 + a / 6

    has no skewness to the order 1 / sqrt(n) and increases with T; the interval holds the means for which it
    lies within +- t_{(1+level)/2, n-1}. Source: Hall, "On the removal of skewness by transformation", J. of
    the Royal Statistical Society B 54(1), 1992; t quantiles stand in for the normal ones, as without skewness
    they are exact. Measured on clusters: tests/study/cluster_coverage.py and docs/statistics.md.
    """
    x = finite_values(values, "values")
    center, error, a = float(x.mean()), standard_error(x), _scaled_skewness(x)
    t = t_quantile(level, x.size - 1)
    if a == 0.0 or not math.isfinite(t * error):
        return Interval(center, center - t * error, center + t * error, x.size, level)
    low, high = (3 / a * (math.cbrt(1 + a * (y - a / 6)) - 1) for y in (-t, t))
    return Interval(center, center - error * high, center - error * low, x.size, level)


def skewness_adjusted_p_value(values: ArrayLike) -> float:
    """Two-sided p-value of mean zero, at most 1 - level where `skewness_adjusted` at that level leaves out 0.

    For values that do not vary 1 where they are zero, else 0; 1 for a single value.
    """
    from scipy.special import stdtr

    x = finite_values(values, "values")
    mean, error, a = float(x.mean()), standard_error(x), _scaled_skewness(x)
    if x.size < 2 or error == 0.0:
        return 0.0 if mean != 0.0 and x.size > 1 else 1.0
    t = mean / error
    return float(2 * stdtr(x.size - 1, -abs(t + a * t**2 / 3 + a**2 * t**3 / 27 + a / 6)))


def _scaled_skewness(x: NDArray[np.float64]) -> float:
    """Skewness over the root of the number of values; 0 where it is lost in rounding."""
    centred = x - x.mean()
    spread = float(np.mean(centred**2))
    if spread <= (1e-12 * float(np.abs(x).max())) ** 2:
        return 0.0
    a = float(np.mean(centred**3)) / spread**1.5 / math.sqrt(x.size)
    return a if abs(a) > 1e-6 else 0.0


def paired_difference(
    a: ArrayLike,
    b: ArrayLike,
    level: float = 0.95,
    interval: Callable[[ArrayLike, float], Interval] = mean_interval,
) -> PairedInterval:
    """Interval for mean(a) - mean(b) under common random numbers; paired-t unless told otherwise.

    Parameters
    ----------
    a, b : array_like, shape (n,)
        The two systems' values, replication by replication in the same order.
    level : float
        Nominal coverage, in (0, 1).
    interval : callable
        What makes the interval of the pairs' differences: `mean_interval` or `skewness_adjusted`.

    Returns
    -------
    PairedInterval
        In the unit of the values, with the variance reduction factor (S_a^2 + S_b^2) / S_d^2.

    Raises
    ------
    InputError
        As `mean_interval`, or when the lengths differ.

    Notes
    -----
    Source: Law, Simulation Modeling and Analysis, 5th ed., sections 10.2.1 (paired t) and 11.2 (common random
    numbers). Valid whatever the dependence within a pair; pairs must be independent of one another.
    """
    x, y = _pairs(a, b)
    d = interval(x - y, level)
    return PairedInterval(d.value, d.low, d.high, d.n, level, _variance_reduction(x, y))


def paired_ratio(a: ArrayLike, b: ArrayLike, level: float = 0.95) -> PairedInterval:
    """Paired-t interval for the ratio a / b, computed on logarithms.

    Parameters
    ----------
    a, b : array_like, shape (n,)
        The two systems' values, replication by replication in the same order, all above zero.
    level : float
        Nominal coverage, in (0, 1).

    Returns
    -------
    PairedInterval
        Dimensionless: exp of the paired interval for log(a) - log(b). The value is the geometric mean of the
        replications' ratios, the interval is not symmetric about it, and swapping a and b inverts all three.
        The variance reduction factor is that of the logarithms.

    Raises
    ------
    InputError
        As `paired_difference`, or when a value is not above zero.
    """
    x, y = _pairs(a, b)
    for name, side in (("a", x), ("b", y)):
        if side.min() <= 0.0:
            raise InputError(f"{name} holds {side.min():g}; a ratio needs values above 0")
    d = paired_difference(np.log(x), np.log(y), level)
    return PairedInterval(math.exp(d.value), math.exp(d.low), exp_or_inf(d.high), d.n, level, d.vrf)


def quantile(values: ArrayLike, p: float) -> float:
    """Sample quantile: the order statistic X_(ceil(p n)), without interpolation.

    Parameters
    ----------
    values : array_like, shape (n,)
        Samples, no NaN, in any order.
    p : float
        Probability in (0, 1], taken as the decimal it prints as (0.07 of 100 samples is the 7th).

    Returns
    -------
    float
        In the unit of `values`; always one of them.

    Raises
    ------
    InputError
        No values, a NaN, or p outside (0, 1].
    """
    return float(quantiles(values, (p,))[0])


def quantiles(values: ArrayLike, ps: Sequence[float]) -> NDArray[np.float64]:
    """Several sample quantiles from one selection pass; see `quantile`.

    Parameters
    ----------
    values : array_like, shape (n,)
        Samples, no NaN, in any order.
    ps : sequence of float, shape (k,)
        Probabilities in (0, 1].

    Returns
    -------
    float64 array, shape (k,)
        In the order of `ps`, in the unit of `values`.
    """
    x = np.asarray(values, dtype=np.float64).ravel()
    if x.size == 0:
        raise InputError("values is empty; a quantile needs at least one sample")
    if np.isnan(x).any():
        raise InputError("values holds NaN; a quantile needs samples that can be ordered")
    index = np.array([quantile_rank(x.size, p) - 1 for p in ps], dtype=np.int64)
    return np.partition(x, np.unique(index))[index]


def quantile_rank(n: int, p: float) -> int:
    """Rank ceil(p n), counted from 1, of the p-quantile among n samples.

    p is read as the decimal it prints as: in binary 0.07 * 100 is a hair above 7, which would pick the 8th.
    """
    if not 0.0 < p <= 1.0:
        raise InputError(f"p is {p}; it must lie in (0, 1]")
    return math.ceil(Fraction(str(float(p))) * n)


def standard_error(values: NDArray[np.float64]) -> float:
    """S / sqrt(n) with the n - 1 divisor, in the unit of the values; infinite for a single value."""
    if values.size < 2:
        return math.inf
    return float(values.std(ddof=1)) / math.sqrt(values.size)


@lru_cache(maxsize=1024)
def t_quantile(level: float, df: int) -> float:
    """Two-sided Student-t critical value t_{(1+level)/2, df}; infinite for no degrees of freedom."""
    check_level(level)
    if df < 1:
        return math.inf
    from scipy.special import stdtrit  # a tenth of the import time of scipy.stats

    return float(stdtrit(df, 0.5 + level / 2))


def check_level(level: float) -> None:
    """Raise InputError unless the level lies in (0, 1)."""
    if not 0.0 < level < 1.0:
        raise InputError(f"level is {level}; it must lie in (0, 1), as 0.95")


def finite_values(values: ArrayLike, name: str) -> NDArray[np.float64]:
    """`values` as a flat float64 array; InputError when empty or not finite."""
    x = np.asarray(values, dtype=np.float64).ravel()
    if x.size == 0:
        raise InputError(f"{name} is empty; at least one value is needed")
    if not np.isfinite(x).all():
        bad = x[~np.isfinite(x)][0]
        raise InputError(f"{name} holds {bad}; all values must be finite")
    return x


def exp_or_inf(x: float) -> float:
    """exp(x), infinite where it overflows."""
    return math.exp(x) if x < 709.0 else math.inf


def _pairs(a: ArrayLike, b: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    x, y = finite_values(a, "a"), finite_values(b, "b")
    if x.size != y.size:
        raise InputError(f"a has {x.size} values and b has {y.size}; pairs need equally many")
    return x, y


def _variance_reduction(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    if x.size < 2:
        return math.nan
    apart, paired = float(x.var(ddof=1) + y.var(ddof=1)), float((x - y).var(ddof=1))
    if paired == 0.0:
        return math.inf if apart > 0.0 else math.nan
    return apart / paired
