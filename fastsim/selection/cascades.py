"""Cascades after FrugalGPT: ask models in order until an answer is trusted, thresholds found under a budget.

Source: Chen, Zaharia and Zou (arXiv 2305.05176): max E[score] subject to E[cost of all calls made] <= budget.
Its abstract reports up to 98 % lower cost at the best model's quality, on its own questions and with a scorer
trained on them; that is context and nothing here is fitted to it: what a cascade saves depends on the scorer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np

from fastsim.errors import InputError, nearest
from fastsim.selection.routed import NO_CALL, Routed, evaluate
from fastsim.selection.tables import Floats, Ints, Outcomes
from fastsim.typed import Count, checked


@dataclass(frozen=True)
class Cascade:
    """Models in the order in which they are asked, and what trust suffices at each but the last.

    Attributes
    ----------
    models : tuple of str
        m >= 1 names.
    thresholds : tuple of float
        m - 1: an answer is accepted if its trust is above; the last model's always is.
    """

    models: tuple[str, ...]
    thresholds: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.models or len(self.thresholds) != len(self.models) - 1:
            raise InputError(
                f"a cascade of {len(self.models)} models has {len(self.thresholds)} thresholds; it needs one "
                f"for each model but the last"
            )

    def calls(self, models: tuple[str, ...], trust: Floats) -> Ints:
        """Which models each question calls.

        Parameters
        ----------
        models : tuple of str
            Names of the K columns of `trust`.
        trust : float64[n, K]
            What a scorer gives each model's answer.

        Returns
        -------
        int64[n, m]
            Indices into `models`, `NO_CALL` after the accepted answer.

        Raises
        ------
        InputError
            For a model that `models` does not hold.
        """
        for model in self.models:
            if model not in models:
                raise InputError(f"cascade: there is no model {model!r}; {nearest(model, models)}")
        columns = np.array([models.index(model) for model in self.models], dtype=np.int64)
        refused = trust[:, columns[:-1]] <= np.array(self.thresholds)
        reached = np.column_stack([np.ones(len(trust), bool), np.logical_and.accumulate(refused, axis=1)])
        return np.where(reached, columns, NO_CALL)

    def route(self, table: Outcomes, trust: Floats) -> Routed:
        """Calls, costs and scores on a table; `trust` is float64[n, K] for its models."""
        return evaluate(table, self.calls(table.models, trust))


@dataclass(frozen=True)
class Found:
    """A cascade on the frontier, with its mean cost and score where it was searched for."""

    cascade: Cascade
    cost: float
    quality: float


@checked
def frontier(
    table: Outcomes,
    trust: Floats,
    *,
    stages: Count = 3,
    grid: int = 40,
    min_improvement: float = 0.01,
    pool: int = 12,
    max_cost: float = np.inf,
) -> list[Found]:
    """All cascades that no other is both cheaper and better than, cheapest first.

    Parameters
    ----------
    table : Outcomes
        What to search on; measure on another, for thresholds fit the questions they are found on.
    trust : float64[n, K]
    stages : int
        Most models in a cascade, m >= 1.
    grid : int
        Thresholds tried at a stage: quantiles of the trust among the questions that reach it.
    min_improvement : float
        Lists are pruned where the next model adds less than this to the last: E[max(s_next - s_last, 0)].
    pool : int
        At most so many models are considered: those that no other is both cheaper and better than, then those
        that only these are, and so on.
    max_cost : float
        Largest mean cost of interest, of all calls made.

    Returns
    -------
    list of Found
        Mean cost and score both ascending.

    Raises
    ------
    InputError
        For a parameter out of range, or where even the cheapest model alone is dearer than `max_cost`.

    Notes
    -----
    Lists ascend in mean cost: to ask a dearer model first and a cheaper one after is left out.
    """
    for name, value, least in (("stages", stages, 1), ("grid", grid, 2), ("pool", pool, 1)):
        if value < least:
            raise InputError(f"{name} is {value}; it must be at least {least}")
    if trust.shape != table.scores.shape:
        raise InputError(f"trust has the shape {trust.shape}; the table's scores have {table.scores.shape}")
    everyone = np.arange(table.size)
    kept: list[tuple[float, float, tuple[int, ...], tuple[float, ...]]] = []
    for order in _lists(table, _best(table, pool), stages, min_improvement):
        cost, quality, thresholds = _settings(table, trust, order, everyone, grid)
        cost, quality = cost / table.size, quality / table.size
        kept += [
            (float(cost[at]), float(quality[at]), order, tuple(thresholds[at].tolist()))
            for at in _undominated(cost, quality, max_cost)
        ]
    if not kept:
        cheapest = float(table.costs.mean(axis=0).min())
        raise InputError(f"max_cost is {max_cost:g}; the cheapest model alone costs {cheapest:g}")
    best = _undominated(np.array([item[0] for item in kept]), np.array([item[1] for item in kept]), max_cost)
    return [
        Found(Cascade(tuple(table.models[model] for model in order), thresholds), cost, quality)
        for cost, quality, order, thresholds in (kept[at] for at in best)
    ]


def under_budget(found: list[Found], budget: float) -> Found:
    """The best cascade of a frontier whose mean cost is within the budget.

    Raises
    ------
    InputError
        If all are dearer.
    """
    within = [item for item in found if item.cost <= budget]
    if not within:
        raise InputError(f"budget is {budget:g}; the cheapest cascade costs {found[0].cost:g}")
    return max(within, key=lambda item: item.quality)


def _best(table: Outcomes, pool: int) -> list[int]:
    """Models by fronts of undominated ones, peeled off until the pool is full; in ascending order of cost."""
    cost, quality = table.costs.mean(axis=0), table.scores.mean(axis=0)
    rest, kept = np.arange(len(table.models)), np.empty(0, np.int64)
    while len(rest) and len(kept) < pool:
        front = rest[_undominated(cost[rest], quality[rest], np.inf)]
        kept = np.concatenate([kept, front[::-1][: pool - len(kept)]])  # the better of the last front
        rest = np.setdiff1d(rest, front)
    return kept[np.lexsort((kept, cost[kept]))].tolist()


def _lists(
    table: Outcomes, by_cost: list[int], stages: int, min_improvement: float
) -> Iterator[tuple[int, ...]]:
    """Lists of models in ascending order of cost, without steps that hardly improve."""
    scores = table.scores

    def gain(last: int, following: int) -> float:
        return float(np.maximum(scores[:, following] - scores[:, last], 0.0).mean())

    helps = {pair for pair in combinations(by_cost, 2) if gain(*pair) >= min_improvement}
    for length in range(1, min(stages, len(by_cost)) + 1):
        for order in combinations(by_cost, length):
            if helps.issuperset(pairwise(order)):
                yield order


def _settings(
    table: Outcomes, trust: Floats, order: tuple[int, ...], rest: Ints, grid: int
) -> tuple[Floats, Floats, Floats]:
    """Total cost and score of the questions `rest` from the first model of `order` on, at every setting.

    Returns float64[p], float64[p] and the settings, float64[p, m - 1].
    """
    here = order[0]
    cost, score = table.costs[rest, here].sum(), table.scores[rest, here]
    if len(order) == 1:
        return np.array([cost]), np.array([score.sum()]), np.empty((1, 0))
    trusted = trust[rest, here]
    tried = _candidates(trusted, grid)
    if len(order) == 2:  # the last threshold: all of its settings at once, by running sums
        rank = np.argsort(trusted, kind="stable")
        refused = np.searchsorted(trusted[rank], tried, side="right")
        after = rest[rank]
        more_cost = _running(table.costs[after, order[1]])[refused]
        more_score = _running(table.scores[after, order[1]] - score[rank])[refused]
        return cost + more_cost, score.sum() + more_score, tried[:, None]
    parts = []
    for threshold in tried:
        passed = trusted <= threshold
        costs, scores, later = _settings(table, trust, order[1:], rest[passed], grid)
        thresholds = np.column_stack([np.full(len(later), threshold), later])
        parts.append((cost + costs, score[~passed].sum() + scores, thresholds))
    costs, scores, thresholds = zip(*parts, strict=True)
    return np.concatenate(costs), np.concatenate(scores), np.concatenate(thresholds)


def _running(values: Floats) -> Floats:
    """Sums of the first 0, 1, 2, ... values."""
    return np.concatenate([[0.0], np.cumsum(values)])


def _candidates(trusted: Floats, grid: int) -> Floats:
    """Thresholds at quantiles of the traffic that reaches a stage; those that pass all on are other lists."""
    if not len(trusted):
        return np.zeros(1)
    return np.unique(np.quantile(trusted, np.linspace(0.0, 1.0, grid + 2)[1:-1], method="inverted_cdf"))


def _undominated(cost: Floats, quality: Floats, max_cost: float) -> Ints:
    """Indices of the points that are affordable and better than all cheaper ones, cheapest first."""
    order = np.lexsort((-quality, cost))
    order = order[cost[order] <= max_cost]
    if not len(order):
        return order
    best_before = np.concatenate([[-np.inf], np.maximum.accumulate(quality[order])[:-1]])
    return order[quality[order] > best_before]
