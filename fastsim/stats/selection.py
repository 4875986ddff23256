"""Which policy is best, and which differ: selection with a guarantee, and families of comparisons."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsim.errors import InputError
from fastsim.stats.intervals import (
    PairedInterval,
    check_level,
    finite_values,
    paired_difference,
    skewness_adjusted_p_value,
)

Sample = Callable[[int, Sequence[int]], ArrayLike]


@dataclass(frozen=True, slots=True)
class Selection:
    """Outcome of `select_best`.

    Attributes
    ----------
    best : int
        The selected system; the best sample mean among the survivors where the cap stopped the procedure.
    survivors : tuple of int
        Systems never screened out; one where the procedure ran to its end.
    decided : bool
        Whether the guarantee holds. False: the cap on replications came first.
    dropped_at : tuple of int
        For each system the replications it had when it was screened out, or those used in all.
    means : tuple of float
        Mean of each system over its replications.
    """

    best: int
    survivors: tuple[int, ...]
    decided: bool
    dropped_at: tuple[int, ...]
    means: tuple[float, ...]


def select_best(
    sample: Sample,
    systems: int,
    indifference: float,
    *,
    level: float = 0.95,
    first: int = 20,
    maximum: int = 10_000,
    smaller_is_better: bool = True,
) -> Selection:
    """Select the system with the best mean by Kim and Nelson's fully sequential procedure.

    Parameters
    ----------
    sample : callable
        ``sample(replicate, alive)`` gives one value for each system in `alive`, on random numbers common to
        them all and independent between replicates. Asked for systems that are still in the running only.
    systems : int
        k >= 2.
    indifference : float
        delta > 0, in the unit of the values: the smallest difference worth detecting.
    level : float
        Probability of a correct selection, in (1 / k, 1).
    first : int
        R0 >= 3 replications of every system before any is dropped.
    maximum : int
        Cap on the replications of a system, at least `first`.
    smaller_is_better : bool
        True for times, False for hit rates.

    Returns
    -------
    Selection
        With probability at least `level` the best system, if it is better than the second by delta or more.

    Raises
    ------
    InputError
        If an argument is out of its range, or a sample has the wrong number of values or one not finite.

    Notes
    -----
    With alpha = 1 - level, h^2 = 2 eta (R0 - 1) and eta = ((2 alpha / (k - 1))^(-2 / (R0 - 1)) - 1) / 2,
    and S_il^2 the variance of the R0 first differences between systems i and l: after r replications system
    i is dropped when its mean is worse than that of some system l by more than

        W_il(r) = max(0, delta / (2 r) (h^2 S_il^2 / delta^2 - r)).

    Source: Kim and Nelson, "A fully sequential procedure for indifference-zone selection in simulation",
    ACM TOMACS 11(3), 2001, with c = 1. Exact for normal values; common random numbers are allowed and
    shorten it, because S_il^2 is the variance of a difference.
    """
    _check_selection(systems, indifference, level, first, maximum)
    sign = -1.0 if smaller_is_better else 1.0
    alive = list(range(systems))
    start = sign * np.array([_draw(sample, r, alive) for r in range(first)])
    sums = start.sum(axis=0)
    variances = (start[:, :, None] - start[:, None, :]).var(axis=0, ddof=1)
    tail = 2 * (1 - level) / (systems - 1)
    h2 = (tail ** (-2 / (first - 1)) - 1) * (first - 1)
    used = np.full(systems, first)
    r = first
    while True:
        alive = _screen(alive, sums, h2 * variances / indifference**2, indifference, r)
        if len(alive) == 1 or r >= maximum:
            break
        sums[alive] += sign * _draw(sample, r, alive)
        r += 1
        used[alive] = r
    means = sign * sums / used
    best = max(alive, key=lambda i: sums[i])
    return Selection(best, tuple(alive), len(alive) == 1, tuple(used.tolist()), tuple(means.tolist()))


def holm(p_values: ArrayLike) -> NDArray[np.float64]:
    """Adjust p-values so that rejecting those <= alpha errs anywhere in the family with probability <= alpha.

    Parameters
    ----------
    p_values : array_like, shape (m,)
        In [0, 1], however dependent on one another.

    Returns
    -------
    float64 array, shape (m,)
        In the given order: for the j-th smallest, the running maximum of (m - j + 1) p_(j), at most 1.

    Raises
    ------
    InputError
        No p-values, or one outside [0, 1].

    Notes
    -----
    Source: Holm, "A simple sequentially rejective multiple test procedure", Scandinavian J. of Statistics
    6, 1979.
    """
    p = finite_values(p_values, "p_values")
    if p.min() < 0.0 or p.max() > 1.0:
        bad = p[(p < 0.0) | (p > 1.0)][0]
        raise InputError(f"p_values holds {bad:g}; all must lie in [0, 1]")
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(p.size, 0, -1)), 1.0)
    return adjusted


@dataclass(frozen=True, slots=True)
class Comparison:
    """One system against the control, as a member of a family.

    Attributes
    ----------
    system : int
        Its index.
    difference : PairedInterval
        System minus control, at the Bonferroni level: all intervals of the family cover at once with the
        family's level.
    p_value : float
        Of the paired t-test by itself, two-sided.
    adjusted_p : float
        By Holm over the family. It can be below 1 - level while the interval, which is Bonferroni's,
        reaches 0.
    """

    system: int
    difference: PairedInterval
    p_value: float
    adjusted_p: float


@dataclass(frozen=True, slots=True)
class Standing:
    """Which differences of a family stand.

    Attributes
    ----------
    family : int
        Pairs that were compared.
    pairs : frozenset of (int, int)
        Those that differ, the smaller index first.
    """

    family: int
    pairs: frozenset[tuple[int, int]]

    def differs(self, i: int, j: int) -> bool:
        """Whether two systems differ."""
        return (min(i, j), max(i, j)) in self.pairs


def compare_to_control(values: ArrayLike, control: int = 0, level: float = 0.95) -> tuple[Comparison, ...]:
    """Every system against one, under common random numbers, as a family.

    Parameters
    ----------
    values : array_like, shape (k, R)
        Values of k >= 2 systems in R >= 2 replications, finite; column r of all rows shares its random
        numbers.
    control : int
        Index of the system the others are compared with.
    level : float
        Probability, in (0, 1), that no member of the family errs.

    Returns
    -------
    tuple of Comparison
        k - 1 of them, by index.

    Raises
    ------
    InputError
        If the shape, the index or the level is out of range, or a value is not finite.
    """
    check_level(level)
    x = np.asarray(values, dtype=np.float64)
    if x.ndim != 2 or x.shape[0] < 2 or x.shape[1] < 2:
        raise InputError(f"values has shape {x.shape}; at least 2 systems by 2 replications are needed")
    if not 0 <= control < x.shape[0]:
        raise InputError(f"control is {control}; it must lie in 0 to {x.shape[0] - 1}")
    others = [i for i in range(x.shape[0]) if i != control]
    each = 1 - (1 - level) / len(others)
    differences = [paired_difference(x[i], x[control], each) for i in others]
    p_values = [_paired_t_p_value(x[i] - x[control]) for i in others]
    rows = zip(others, differences, p_values, holm(p_values).tolist(), strict=True)
    return tuple(Comparison(i, difference, p, adjusted) for i, difference, p, adjusted in rows)


def differing_pairs(systems: Sequence[Mapping[int, float]], level: float = 0.95) -> Standing:
    """Which systems differ from which, all pairs being one family, under common random numbers.

    Parameters
    ----------
    systems : sequence of mapping of int to float
        Value by replicate of each of k >= 2 systems; a pair is compared on the replicates that both have, and
        left out of the family where those are fewer than two.
    level : float
        Probability, in (0, 1), that no pair of equal systems is called different.

    Returns
    -------
    Standing
        By Holm over the pairs' two-sided paired t-tests, adjusted for skewness (`skewness_adjusted`).

    Raises
    ------
    InputError
        If the level is out of range, or a value is not finite.
    """
    check_level(level)
    pairs: list[tuple[int, int]] = []
    p_values: list[float] = []
    for i, j in itertools.combinations(range(len(systems)), 2):
        both = [replicate for replicate in systems[i] if replicate in systems[j]]
        if len(both) > 1:
            apart = [systems[i][r] - systems[j][r] for r in both]
            pairs.append((i, j))
            p_values.append(skewness_adjusted_p_value(apart))
    if not pairs:
        return Standing(0, frozenset())
    adjusted = holm(p_values)
    return Standing(
        len(pairs), frozenset(pair for pair, p in zip(pairs, adjusted, strict=True) if p <= 1 - level)
    )


def _paired_t_p_value(differences: NDArray[np.float64]) -> float:
    """Two-sided p-value of mean zero; for differences that do not vary 1 where they are zero, else 0."""
    from scipy.special import stdtr

    spread, mean = float(differences.std(ddof=1)), float(differences.mean())
    if spread == 0.0:
        return 1.0 if mean == 0.0 else 0.0
    t = abs(mean) / (spread / math.sqrt(differences.size))
    return float(2 * stdtr(differences.size - 1, -t))


def _screen(
    alive: list[int], sums: NDArray[np.float64], scaled: NDArray[np.float64], delta: float, r: int
) -> list[int]:
    """Systems whose mean is not worse than any other's by more than W_il; larger is better here."""
    slack = np.maximum(0.0, delta / (2 * r) * (scaled[np.ix_(alive, alive)] - r))
    means = sums[alive] / r
    bars = np.max(means[None, :] - slack, axis=1)
    return [i for i, mean, bar in zip(alive, means, bars, strict=True) if mean >= bar]


def _draw(sample: Sample, replicate: int, alive: Sequence[int]) -> NDArray[np.float64]:
    values = finite_values(sample(replicate, tuple(alive)), "sample")
    if values.size != len(alive):
        raise InputError(f"sample gave {values.size} values for {len(alive)} systems")
    return values


def _check_selection(systems: int, indifference: float, level: float, first: int, maximum: int) -> None:
    if systems < 2:
        raise InputError(f"systems is {systems}; at least 2 are needed")
    if not (indifference > 0.0 and math.isfinite(indifference)):
        raise InputError(f"indifference is {indifference}; it must be above 0 and finite")
    if not 1 / systems < level < 1.0:
        raise InputError(f"level is {level}; with {systems} systems it must lie in ({1 / systems:g}, 1)")
    if first < 3:
        raise InputError(f"first is {first}; at least 3 replications are needed")
    if maximum < first:
        raise InputError(f"maximum is {maximum}; it must be at least first, {first}")
