"""Balls into bins: simulation of the fullest bin, with theory beside it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from fastsim._interrupt import checkpoint, hears_interrupts, in_threads
from fastsim._memory import require_memory
from fastsim.errors import InputError
from fastsim.queueing import fluid, throws
from fastsim.queueing.balls_theory import MaxLaw, asymptotic_max, from_tails, one_choice_max
from fastsim.queueing.laws import Law, law
from fastsim.rng import stream
from fastsim.stats import Interval, mean_interval, quantile
from fastsim.typed import Seed, Share, Threads, checked

__all__ = ["BallsResult", "BallsTheory", "balls"]

Balls = Annotated[int, Meta(ge=1, le=2**31 - 1)]  # bins are counted in int32
Choices = Annotated[int, Meta(ge=1, le=10_000)]
Probability = Annotated[float, Meta(ge=0.0, le=1.0)]
Trials = Annotated[int, Meta(ge=1, le=10**12)]
_BALLS_A_BLOCK = 1 << 20  # of trials that share a random stream; fixed, so that workers do not matter
_BALLS_A_BIN_MAX = 1_000_000  # that theory is asked for
_BALLS_BY_DEFAULT = 100_000_000


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


@hears_interrupts
@checked
def balls(
    bins: Balls,
    balls: Balls | None = None,
    choices: Choices = 2,
    *,
    replacement: bool = True,
    beta: Probability = 1.0,
    rule: Literal["random", "left"] = "random",
    weights: str | Law | None = None,
    trials: Trials | None = None,
    seed: Seed = 0,
    level: Share = 0.95,
    workers: Threads = 1,
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
    rounds = min(10_000, max(30, _BALLS_BY_DEFAULT // n)) if trials is None else trials
    heavy = None if weights is None else law(weights)
    a_bin = 4 if heavy is None else 8
    decks = 0 if replacement or rule == "left" else 8
    needed = float(bins) * (a_bin + decks) * min(workers, rounds) + 32.0 * rounds
    require_memory(needed, f"{rounds:,} trials with {bins:,} bins, {min(workers, rounds)} at a time,")
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

    maxima = np.concatenate(in_threads(block, starts, workers))
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
        checkpoint()
        loads = np.zeros(bins)
        for start in range(0, n, weights.size):
            part = weights[: n - start]
            heavy.fill(sizes, part)
            most[trial] = throws.weighted_choices(state, loads, part, *how)
    return most


def _theory(bins: int, n: int, d: int, replacement: bool, beta: float, rule: str) -> BallsTheory | None:
    blind = d == 1 or beta == 0.0
    asymptotic = asymptotic_max(bins, d) if n == bins >= 3 and beta in (0.0, 1.0) else None
    if n > _BALLS_A_BIN_MAX * bins:  # the law of one bin alone would not fit
        return None
    if blind and rule == "random":
        return BallsTheory("exact", one_choice_max(n, bins), asymptotic)
    if bins < 100 or n > 50 * bins:  # far from infinitely many bins, or slow to integrate
        return None
    if rule == "left":
        return BallsTheory("fluid limit", from_tails(fluid.left_tails(n / bins, d), bins), None)
    return BallsTheory("fluid limit", from_tails(fluid.balls_tails(n / bins, d, beta), bins), asymptotic)


def _check(bins: int, n: int, choices: int, replacement: bool, beta: float, rule: str) -> None:
    if choices > bins and (not replacement or rule == "left"):
        raise InputError(f"choices is {choices}; {bins} bins allow at most {bins} different ones")
    if rule == "left" and beta != 1.0:
        raise InputError(
            f"beta is {beta}; the rule 'left' gives every ball all its choices, so leave it at 1"
        )
