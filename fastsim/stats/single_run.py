"""Intervals without independent replications: sections of one long run, ranks of independent samples."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsim.errors import InputError
from fastsim.stats.intervals import (
    Interval,
    check_level,
    finite_values,
    mean_interval,
    quantile,
    quantile_rank,
    t_quantile,
)


def batch_means(values: ArrayLike, batches: int = 16, level: float = 0.95) -> Interval:
    """Student-t interval for the mean of one long stationary run from the means of its batches.

    Parameters
    ----------
    values : array_like, shape (n,)
        Successive outputs after the warm-up, finite, n >= batches; the first n mod `batches` are left out.
    batches : int
        m >= 2 contiguous batches of equal length; 10 to 20.
    level : float
        Nominal coverage, in (0, 1).

    Returns
    -------
    Interval
        mean +- t_{m-1} S_batches / sqrt(m), in the unit of the values.

    Raises
    ------
    InputError
        Fewer than 2 batches or fewer values than batches, values that are not finite, a level out of range.

    Notes
    -----
    Valid once a batch is much longer than the correlation of the run. Source: Asmussen and Glynn, Stochastic
    Simulation, 2007, section IV.5.
    """
    return mean_interval(_sections(values, batches).mean(axis=1), level)


def sectioning(values: ArrayLike, p: float, batches: int = 16, level: float = 0.95) -> Interval:
    """Interval for a quantile of one long stationary run: sections give the spread, the whole the centre.

    Parameters
    ----------
    values, batches, level
        As for `batch_means`.
    p : float
        Probability in (0, 1].

    Returns
    -------
    Interval
        q_n +- t_{m-1} sqrt(sum_i (q_i - q_n)^2 / (m - 1) / m) with q_n the order statistic of all the
        values and q_i those of the sections, in the unit of the values.

    Raises
    ------
    InputError
        As `batch_means`, or p out of range.

    Notes
    -----
    Centred on the overall quantile because the bias of a section's quantile is m times larger. Valid once a
    section is much longer than the correlation of the run and holds many samples beyond the quantile.
    Sources: Asmussen and Glynn, Stochastic Simulation, 2007, section III.5a; Nakayama, "Confidence
    intervals for quantiles using sectioning when applying variance-reduction techniques", ACM TOMACS 24(4),
    2014.
    """
    sections = _sections(values, batches)
    whole = quantile(sections, p)
    spread = np.array([quantile(section, p) for section in sections]) - whole
    half = t_quantile(level, batches - 1) * math.sqrt(float(spread @ spread) / (batches - 1) / batches)
    return Interval(whole, whole - half, whole + half, batches, level)


def order_statistic_interval(values: ArrayLike, p: float, level: float = 0.95) -> Interval:
    """Distribution-free interval for the p-quantile of independent, identically distributed samples.

    Parameters
    ----------
    values : array_like, shape (n,)
        Independent samples, finite: not the requests of one run, which are correlated.
    p : float
        Probability in (0, 1).
    level : float
        Least coverage, in (0, 1).

    Returns
    -------
    Interval
        [X_(l), X_(u)] about X_(ceil(p n)), in the unit of the values. l is the largest rank with P(B < l)
        <= (1 - level) / 2 and u the smallest with P(B >= u) <= (1 - level) / 2 for B ~ Bin(n, p). A limit
        is infinite where n is too small for it.

    Raises
    ------
    InputError
        No values, values that are not finite, p or level out of range.

    Notes
    -----
    Covers with probability at least `level` for every distribution, with or without ties. Source: David and
    Nagaraja, Order Statistics, 3rd ed., section 7.1.
    """
    check_level(level)
    x = np.sort(finite_values(values, "values"))
    if not 0.0 < p < 1.0:
        raise InputError(f"p is {p}; it must lie in (0, 1)")
    low, high = _quantile_ranks(x.size, p, (1 - level) / 2)
    return Interval(
        value=float(x[quantile_rank(x.size, p) - 1]),
        low=float(x[low - 1]) if low >= 1 else -math.inf,
        high=float(x[high - 1]) if high <= x.size else math.inf,
        n=x.size,
        level=level,
    )


def _quantile_ranks(n: int, p: float, tail: float) -> tuple[int, int]:
    """Ranks l (0: none) and u (n + 1: none) with P(B < l) <= tail and P(B >= u) <= tail, B ~ Bin(n, p)."""
    from scipy.stats import binom

    low = int(binom.ppf(tail, n, p))  # smallest k with P(B <= k) >= tail, so P(B < k) < tail
    high = int(binom.isf(tail, n, p)) + 1  # isf: smallest k with P(B > k) <= tail
    return low, high


def _sections(values: ArrayLike, batches: int) -> NDArray[np.float64]:
    """The values as rows of equal length; the first few are left out where it does not divide."""
    x = finite_values(values, "values")
    if batches < 2:
        raise InputError(f"batches is {batches}; at least 2 are needed")
    if x.size < batches:
        raise InputError(f"values has {x.size} entries; {batches} batches need at least as many")
    return x[x.size % batches :].reshape(batches, -1)
