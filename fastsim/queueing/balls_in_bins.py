"""Balls into bins: simulation of the fullest bin, with theory beside it."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsim.errors import InputError, nearest
from fastsim.queueing import fluid, throws
from fastsim.queueing.balls_theory import MaxLaw, asymptotic_max, from_tails, one_choice_max
from fastsim.queueing.checks import number, whole
from fastsim.queueing.laws import Law, law
from fastsim.rng import stream
from fastsim.stats import Interval, mean_interval, quantile
from fastsim.stats.intervals import check_level

__all__ = ["BallsResult", "BallsTheory", "balls"]

_CHOICES_MAX = 10_000
_BALLS_MAX = 2**31 - 1  # bins are counted in int32
_BALLS_A_BLOCK = 1 << 20  # of trials that share a random stream; fixed, so that workers do not matter
_BALLS_BY_DEFAULT = 100_000_000
_RULES = ("random", "left")


@dataclass(frozen=True)
class BallsTheory:
    """What theory says of the fullest bin.

    Attributes
    ----------
    kind : str
        ``"exact"`` (one choice) or ``"fluid limit"`` (infinitely many bins; the law of the fullest one is
        estimated).
    law : MaxLaw
        Its law.
    asymptotic : float or None
        Leading term for as many balls as bins (`asymptotic_max`), else None.
    """

    kind: str
    law: MaxLaw
    asymptotic: float | None


@dataclass(frozen=True)
class BallsResult:
    """Simulated trials of balls into bins.

    Attributes
    ----------
    bins, balls, choices, trials : int
        As simulated.
    mean : Interval
        Balls (or weight) in the fullest bin, mean over trials.
    maxima : float64[trials]
        The fullest bin of every trial.
    theory : BallsTheory or None
        Where there is any.
    """

    bins: int
    balls: int
    choices: int
    trials: int
    mean: Interval
    maxima: NDArray[np.float64]
    theory: BallsTheory | None

    @property
    def distribution(self) -> dict[float, float]:
        """Fraction of trials by what the fullest bin held."""
        values, counts = np.unique(self.maxima, return_counts=True)
        return dict(zip(values.tolist(), (counts / self.trials).tolist(), strict=True))

    def quantile(self, p: float) -> float:
        """p-quantile over the trials of the fullest bin."""
        return quantile(self.maxima, p)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers for JSON; the distribution is left out when the balls have weights."""
        row: dict[str, Any] = {"bins": self.bins, "balls": self.balls, "choices": self.choices}
        row |= {"trials": self.trials, "mean": self.mean.value}
        for name, value in (("low", self.mean.low), ("high", self.mean.high)):
            row[name] = value if math.isfinite(value) else None  # one trial has no interval
        if np.all(self.maxima % 1.0 == 0.0):
            row["distribution"] = {str(int(k)): share for k, share in self.distribution.items()}
        if self.theory:
            row |= {"theory": self.theory.law.mean, "theory_kind": self.theory.kind}
            row["asymptotic"] = self.theory.asymptotic
        return row


def balls(
    bins: int,
    balls: int | None = None,
    choices: int = 2,
    *,
    replacement: bool = True,
    beta: float = 1.0,
    rule: str = "random",
    weights: str | Law | None = None,
    trials: int | None = None,
    seed: int = 0,
    level: float = 0.95,
    workers: int = 1,
) -> BallsResult:
    """Throw balls into bins, one after the other, and look at the fullest bin.

    Parameters
    ----------
    bins : int
        m, from 1 to 2^31 - 1.
    balls : int, optional
        n, as many as bins unless given; below 2^31.
    choices : int
        d: every ball goes to the emptiest of d bins, ties at random.
    replacement : bool
        Whether the d bins are drawn with replacement.
    beta : float
        Probability in [0, 1] that a ball has its d choices; else it has one. The (1 + beta) choice for d = 2.
    rule : {"random", "left"}
        ``"left"`` draws one bin from each d-th of the bins and gives ties to the leftmost (always-go-left).
    weights : str or Law, optional
        Law of the balls' weights (`fastsim.queueing.laws`); all weigh 1 unless given, and bins are compared
        by weight.
    trials : int, optional
        Independent repetitions; unless given as many as 10^8 balls allow, between 30 and 10,000.
    seed : int
        Not negative; the same seed gives the same trials whatever the number of workers.
    level : float
        Of the confidence interval.
    workers : int
        Threads.

    Returns
    -------
    BallsResult

    Raises
    ------
    InputError
        For arguments out of range.
    """
    n = bins if balls is None else balls
    _check(bins, n, choices, replacement, beta, rule)
    check_level(number("level", level))
    rounds = min(10_000, max(30, _BALLS_BY_DEFAULT // n)) if trials is None else trials
    for name, value, least in (("trials", rounds, 1), ("workers", workers, 1), ("seed", seed, 0)):
        whole(name, value, least)
    heavy = None if weights is None else law(weights)
    a_block = max(1, _BALLS_A_BLOCK // n)
    starts = range(0, rounds, a_block)

    def block(start: int) -> NDArray[np.float64]:
        state = stream(seed, start // a_block, "routing")
        deck = np.arange(bins) if not replacement and rule == "random" else np.empty(0, np.int64)
        how = (choices, float(beta), rule == "left", deck)
        count = min(a_block, rounds - start)
        if heavy is None:
            return _throw(state, bins, n, how, count)
        return _throw_weighted(state, stream(seed, start // a_block, "sizes"), heavy, bins, n, how, count)

    with ThreadPoolExecutor(workers) as pool:
        maxima = np.concatenate(list(pool.map(block, starts)))
    theory = _theory(bins, n, choices, replacement, beta, rule) if heavy is None else None
    return BallsResult(bins, n, choices, rounds, mean_interval(maxima, level), maxima, theory)


def _throw(
    state: NDArray[np.uint64], bins: int, n: int, how: tuple[int, float, bool, Any], trials: int
) -> NDArray[np.float64]:
    d, beta, left, deck = how
    counts, most = np.zeros(bins, np.int32), np.zeros(trials, np.int64)
    if d == 1 or (beta == 0.0 and not left):
        throws.one_choice(state, counts, n, most)
    elif d == 2 and beta == 1.0 and not left and deck.size == 0:
        throws.two_choices(state, counts, n, most)
    else:
        throws.any_choices(state, counts, n, d, beta, left, deck, most)
    return most.astype(np.float64)


def _throw_weighted(
    state: NDArray[np.uint64],
    sizes: NDArray[np.uint64],
    heavy: Law,
    bins: int,
    n: int,
    how: tuple[int, float, bool, Any],
    trials: int,
) -> NDArray[np.float64]:
    most = np.zeros(trials)
    weights = np.empty(min(n, _BALLS_A_BLOCK))
    for trial in range(trials):
        loads = np.zeros(bins)
        for start in range(0, n, weights.size):
            part = weights[: n - start]
            heavy.fill(sizes, part)
            most[trial] = throws.weighted_choices(state, loads, part, *how)
    return most


def _theory(bins: int, n: int, d: int, replacement: bool, beta: float, rule: str) -> BallsTheory | None:
    blind = d == 1 or beta == 0.0
    asymptotic = asymptotic_max(bins, d) if n == bins >= 3 and beta in (0.0, 1.0) else None
    if blind and rule == "random":
        return BallsTheory("exact", one_choice_max(n, bins), asymptotic)
    if bins < 100 or n > 50 * bins:  # far from infinitely many bins, or slow to integrate
        return None
    if rule == "left":
        return BallsTheory("fluid limit", from_tails(fluid.left_tails(n / bins, d), bins), None)
    return BallsTheory("fluid limit", from_tails(fluid.balls_tails(n / bins, d, beta), bins), asymptotic)


def _check(bins: int, n: int, choices: int, replacement: bool, beta: float, rule: str) -> None:
    for name, value in (("bins", bins), ("balls", n)):
        if not 1 <= whole(name, value) <= _BALLS_MAX:
            raise InputError(f"{name} is {value}; it must lie between 1 and {_BALLS_MAX}")
    whole("choices", choices, 1, _CHOICES_MAX)
    if not isinstance(replacement, bool):
        raise InputError(f"replacement is {replacement!r}; it must be true or false")
    if rule not in _RULES:
        raise InputError(f"there is no rule {rule!r}; {nearest(rule, _RULES)}")
    if choices > bins and (not replacement or rule == "left"):
        raise InputError(f"choices is {choices}; {bins} bins allow at most {bins} different ones")
    if not 0.0 <= number("beta", beta) <= 1.0:
        raise InputError(f"beta is {beta}; it must lie in [0, 1]")
    if rule == "left" and beta != 1.0:
        raise InputError(
            f"beta is {beta}; the rule 'left' gives every ball all its choices, so leave it at 1"
        )
