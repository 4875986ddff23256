"""Bootstrap over questions: draws shared by all that is compared, repeats of a question together."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fastsim.errors import InputError
from fastsim.rng import generator
from fastsim.selection.tables import Floats, Ints
from fastsim.stats import Interval, PairedInterval


@dataclass(frozen=True, eq=False)
class Draws:
    """Bootstrap draws of questions.

    Attributes
    ----------
    cluster : int64[n]
        Question of each row, 0 to G - 1.
    count : float64[R, G]
        How often each draw holds each question: G drawn with replacement.
    """

    cluster: Ints
    count: Floats

    @property
    def clusters(self) -> int:
        """Different questions, G: the independent values behind an interval."""
        return self.count.shape[1]

    @property
    def weight(self) -> Floats:
        """float64[R, n]: how often each row counts in each draw."""
        return self.count[:, self.cluster]

    def means(self, values: Floats) -> Floats:
        """Mean over the rows of each draw.

        Parameters
        ----------
        values : float64[n, p]

        Returns
        -------
        float64[R, p]
        """
        sums = np.zeros((self.clusters, values.shape[1]))
        np.add.at(sums, self.cluster, values)
        return (self.count @ sums) / (self.count @ np.bincount(self.cluster))[:, None]


def draw_questions(question: Ints, draws: int, seed: int) -> Draws:
    """Draw questions with replacement; rows of the same question are drawn together (cluster bootstrap).

    Parameters
    ----------
    question : int64[n]
        As in `Outcomes`.
    draws : int
        R >= 100: below, a percentile at 2.5 % has no meaning.
    seed : int
        Root of the random stream "bootstrap".

    Source: Davison and Hinkley, Bootstrap Methods and their Application (1997), section 3.8.
    """
    if draws < 100:
        raise InputError(f"draws is {draws}; an interval needs at least 100 bootstrap draws")
    _, cluster = np.unique(question, return_inverse=True)
    groups = int(cluster.max()) + 1
    if groups < 2:
        raise InputError("there is only 1 question to test on; an interval needs at least 2")
    chances = np.full(groups, 1.0 / groups)
    count = generator(seed, 0, "bootstrap").multinomial(groups, chances, size=draws)
    return Draws(cluster, count.astype(np.float64))


def interval(value: float, drawn: ArrayLike, clusters: int, level: float = 0.95) -> Interval | None:
    """Percentile interval around an estimate; None where the estimate is undefined or infinite.

    Parameters
    ----------
    value : float
        The estimate from all questions.
    drawn : array_like, shape (R,)
        The same from each draw. -inf stands for a target never reached; NaN (undefined) is left out.
    clusters : int
        Independent questions.
    level : float
    """
    if not math.isfinite(value):
        return None
    low, high = _percentiles(drawn, level)
    return Interval(value, low, high, clusters, level)


def paired(
    value: float, drawn: ArrayLike, other: float, other_drawn: ArrayLike, clusters: int, level: float = 0.95
) -> PairedInterval | None:
    """Percentile interval of a difference on the same draws; None where either side is undefined.

    The variance reduction factor says how many times more questions two separate samples would have needed.
    """
    if not (math.isfinite(value) and math.isfinite(other)):
        return None
    a, b = np.asarray(drawn, dtype=np.float64), np.asarray(other_drawn, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        apart = a - b
    low, high = _percentiles(apart, level)
    good = np.isfinite(apart)
    together = float(apart[good].var()) if good.any() else math.nan
    both = float(a[good].var() + b[good].var()) if good.any() else math.nan
    ratio = both / together if together > 0.0 else (math.inf if both > 0.0 else math.nan)
    return PairedInterval(value - other, low, high, clusters, level, ratio)


def _percentiles(drawn: ArrayLike, level: float) -> tuple[float, float]:
    values = np.asarray(drawn, dtype=np.float64)
    values = values[~np.isnan(values)]
    if not len(values):
        return -math.inf, math.inf
    tail = (1.0 - level) / 2.0
    low, high = np.quantile(values, [tail, 1.0 - tail], method="inverted_cdf")
    return float(low), float(high)
