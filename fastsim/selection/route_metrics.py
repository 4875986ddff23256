"""Measures of model routers: RouteLLM's for two models, RouterBench's, RouterArena's, gains over baselines.

All take plain arrays; the first axis of what is called ``[..., p]`` may be bootstrap draws.

Published headlines (RouteLLM: 85 % lower cost at 95 % of GPT-4's quality on MT-Bench) used trained encoders
and other training data: context, and no target for routers that see hashed words.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fastsim.errors import InputError
from fastsim.selection.tables import Floats, Ints

# --- two models: shares of strong calls ---------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class StrongCurve:
    """Quality of a two-model router at every share of strong calls that its ranking allows.

    Attributes
    ----------
    share : float64[..., p]
        From 0 to 1, ascending.
    quality : float64[..., p]
        Mean score there.

    Notes
    -----
    Between neighbouring points, and inside groups of questions that the router ranks equal, quality is
    linear: that is what a random choice among them gives on average.
    """

    share: Floats
    quality: Floats

    @property
    def pgr(self) -> Floats:
        """Performance gap recovered, (r - r(weak)) / (r(strong) - r(weak)); NaN where strong is not better.

        Source: RouteLLM (arXiv 2406.18665), section 2.
        """
        weak, strong = self.quality[..., :1], self.quality[..., -1:]
        gap = np.where(strong > weak, strong - weak, np.nan)
        return (self.quality - weak) / gap


def strong_curve(
    gain: ArrayLike, weak: ArrayLike, strong: ArrayLike, weight: ArrayLike | None = None
) -> StrongCurve:
    """Send questions to the strong model in the order of the predicted gain, largest first.

    Parameters
    ----------
    gain : array_like, shape (n,)
        What the router ranks by; equal values go together.
    weak, strong : array_like, shape (n,)
        Scores of the two models.
    weight : array_like, shape (..., n), optional
        How often each question counts; a row for each bootstrap draw.
    """
    ranked = np.asarray(gain, dtype=np.float64)
    order = np.argsort(-ranked, kind="stable")
    ends = np.flatnonzero(np.append(ranked[order][1:] != ranked[order][:-1], True))
    w = np.ones(len(ranked)) if weight is None else np.asarray(weight, dtype=np.float64)
    base = np.asarray(weak, dtype=np.float64)
    more = np.asarray(strong, dtype=np.float64) - base
    total = w.sum(axis=-1, keepdims=True)

    def climb(values: Floats) -> Floats:
        sums = np.cumsum(values[..., order], axis=-1)[..., ends]
        return np.concatenate([np.zeros_like(total), sums], axis=-1) / total

    start = (w * base).sum(axis=-1, keepdims=True) / total
    return StrongCurve(climb(w), start + climb(w * more))


def apgr(curve: StrongCurve) -> Floats:
    """Area under PGR over the share of strong calls, by trapezoids as in the repository, all thresholds."""
    return np.asarray(np.trapezoid(curve.pgr, curve.share, axis=-1))


def apgr_grid(curve: StrongCurve, points: int = 11) -> Floats:
    """Mean PGR over evenly spaced shares from 0 to 1: the paper's way."""
    shares = np.linspace(0.0, 1.0, points)
    flat_share = curve.share.reshape(-1, curve.share.shape[-1])
    flat_pgr = curve.pgr.reshape(flat_share.shape)
    means = [
        float(np.interp(shares, share, pgr).mean()) for share, pgr in zip(flat_share, flat_pgr, strict=True)
    ]
    return np.array(means).reshape(curve.share.shape[:-1])


def cpt(curve: StrongCurve, recovered: float) -> Floats:
    """Call-performance threshold CPT(x): least share of strong calls with PGR >= x, by linear interpolation.

    Parameters
    ----------
    curve : StrongCurve
    recovered : float
        x in (0, 1], as 0.5 for CPT(50 %).

    Returns
    -------
    float64[...]
        In [0, 1]; NaN where the strong model is not better.
    """
    if not 0.0 < recovered <= 1.0:
        raise InputError(f"recovered is {recovered:g}; it must lie in (0, 1], as 0.5")
    pgr = curve.pgr
    reached = pgr >= recovered - 1e-12  # 1 is reached at the last point, whatever rounding says
    at = np.maximum(reached.argmax(axis=-1), 1)[..., None]
    high, low = (np.take_along_axis(pgr, index, axis=-1)[..., 0] for index in (at, at - 1))
    right, left = (np.take_along_axis(curve.share, index, axis=-1)[..., 0] for index in (at, at - 1))
    with np.errstate(invalid="ignore", divide="ignore"):
        part = np.where(high > low, (recovered - low) / (high - low), 1.0)
    return np.where(np.isfinite(high), left + np.clip(part, 0.0, 1.0) * (right - left), np.nan)


def oracle_at_share(weak: ArrayLike, strong: ArrayLike, share: float) -> float:
    """Best mean score with at most this share of strong calls: the calls go where they gain most.

    For scores of 0 and 1 it is (weak-correct + min(share n, only-strong-correct)) / n.
    """
    if not 0.0 <= share <= 1.0:
        raise InputError(f"share is {share:g}; it must lie from 0 to 1")
    low = np.asarray(weak, dtype=np.float64)
    gains = np.sort(np.asarray(strong, dtype=np.float64) - low)[::-1].clip(0.0)
    calls = share * len(low)
    whole = int(calls)
    part = (calls - whole) * gains[whole] if whole < len(gains) else 0.0
    return float((low.sum() + gains[:whole].sum() + part) / len(low))


# --- cost against quality -----------------------------------------------------------------------------------


def hull_members(cost: ArrayLike, quality: ArrayLike) -> Ints:
    """Indices of the points on the non-decreasing convex hull, cheapest first.

    Parameters
    ----------
    cost, quality : array_like, shape (p,)

    Returns
    -------
    int64[h]
        From the cheapest (of equally cheap ones the best) to the best (of equally good ones the cheapest).
        Mixing neighbours at random reaches every point on the lines between; a single set of models gives
        the zero router of RouterBench (arXiv 2403.12031).
    """
    c, q = np.asarray(cost, dtype=np.float64), np.asarray(quality, dtype=np.float64)
    hull: list[int] = []
    for point in np.lexsort((-q, c)):
        if hull and q[point] <= q[hull[-1]]:
            continue
        while len(hull) > 1 and _below(c, q, hull[-2], hull[-1], point):
            hull.pop()
        hull.append(int(point))
    return np.array(hull, dtype=np.int64)


def _below(c: Floats, q: Floats, left: int, middle: int, right: int) -> bool:
    """Whether the middle point lies on or below the line between its neighbours."""
    return (q[middle] - q[left]) * (c[right] - c[left]) <= (q[right] - q[left]) * (c[middle] - c[left])


def aiq(cost: ArrayLike, quality: ArrayLike, most: float, least: float | None = None) -> float:
    """Average improvement in quality: area under the non-decreasing hull over a range of costs.

    Parameters
    ----------
    cost, quality : array_like, shape (p,)
        A router's points, one a setting of its dial.
    most : float
        Largest cost among all compared routers; every hull is extended flat to it.
    least : float, optional
        Given: area from there on over ``most - least``, as the paper writes; a hull that begins later counts
        0 before. By default the repository's rule: area from the router's own cheapest point over `most`.

    Source: RouterBench (arXiv 2403.12031), section 3, and its code.
    """
    c, q = np.asarray(cost, dtype=np.float64), np.asarray(quality, dtype=np.float64)
    members = hull_members(c, q)
    x, y = np.append(c[members], max(most, c[members[-1]])), np.append(q[members], q[members[-1]])
    low = 0.0 if least is None else least
    if not most > low:
        raise InputError(f"most is {most:g}; it must be above {low:g}, for there to be a range of costs")
    if least is not None and x[0] < least:  # cut off what is cheaper than the range
        y = np.concatenate([[np.interp(least, x, y)], y[x > least]])
        x = np.concatenate([[least], x[x > least]])
    return float(np.trapezoid(y, x) / (most - low))


def cost_to_reach(cost: ArrayLike, quality: ArrayLike, wanted: float) -> float:
    """Least mean cost at which a router reaches a quality, mixing its settings at random; inf where never."""
    c, q = np.asarray(cost, dtype=np.float64), np.asarray(quality, dtype=np.float64)
    members = hull_members(c, q)
    if q[members[-1]] < wanted - 1e-12 * abs(wanted):  # equal means may differ by rounding
        return math.inf
    return float(np.interp(wanted, q[members], c[members]))


def cost_save(cost: ArrayLike, quality: ArrayLike, baseline_cost: float, baseline_quality: float) -> float:
    """CostSave: 1 - (least cost that reaches the baseline's quality) / (its cost); -inf where never reached.

    Named after LLMRouterBench (arXiv 2601.07206); the formula is ours.
    """
    if not baseline_cost > 0.0:
        return math.nan
    return 1.0 - cost_to_reach(cost, quality, baseline_quality) / baseline_cost


def gain_at_baseline(quality: ArrayLike, baseline: ArrayLike) -> Floats:
    """Gain@B: quality over the baseline's, minus 1. Named after LLMRouterBench; the formula is ours."""
    return np.asarray(quality, dtype=np.float64) / np.asarray(baseline, dtype=np.float64) - 1.0


def gap_at_oracle(quality: ArrayLike, oracle: ArrayLike) -> Floats:
    """Gap@Oracle: 1 - quality over the oracle's. Named after LLMRouterBench; the formula is ours."""
    return 1.0 - np.asarray(quality, dtype=np.float64) / np.asarray(oracle, dtype=np.float64)


ARENA_LEAST, ARENA_MOST = 0.0044, 200.0  # dollars per 1,000 questions
ARENA_BETA = 0.1


def router_arena(accuracy: ArrayLike, dollars_per_1k: ArrayLike) -> Floats:
    """RouterArena's score S = (1 + b) A C / (b A + C), with C on a logarithmic scale of cost.

    Parameters
    ----------
    accuracy : array_like
        A in [0, 1].
    dollars_per_1k : array_like
        Cost of 1,000 questions; C = (log2 c_max - log2 c) / (log2 c_max - log2 c_min), kept within 0 and 1.

    Source: RouterArena's code, b = 0.1, c_max = 200, c_min = 0.0044.
    """
    a = np.asarray(accuracy, dtype=np.float64)
    c = np.clip(np.asarray(dollars_per_1k, dtype=np.float64), ARENA_LEAST, ARENA_MOST)
    cheap = (math.log2(ARENA_MOST) - np.log2(c)) / (math.log2(ARENA_MOST) - math.log2(ARENA_LEAST))
    below = ARENA_BETA * a + cheap
    return np.divide((1 + ARENA_BETA) * a * cheap, below, out=np.zeros_like(below), where=below > 0.0)
