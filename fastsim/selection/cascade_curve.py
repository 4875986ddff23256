"""Cascades as one line of a comparison of routers: searched on the training part, measured on the other."""

from __future__ import annotations

import numpy as np

from fastsim.selection.cascades import frontier
from fastsim.selection.compare_routers import POINTS, Curve
from fastsim.selection.scorers import scorer_of_auc
from fastsim.selection.tables import Split
from fastsim.typed import Count, Seed, checked


@checked
def cascade_curve(parts: Split, auc: float, *, stages: Count = 3, seed: Seed = 0) -> Curve:
    """Cascades whose scorer tells right answers from wrong ones with this AUC, one setting a budget.

    Parameters
    ----------
    parts : Split
    auc : float
        See `scorer_of_auc`: assumed, as no table holds what a scorer would say.
    stages : int
        Most models a question may call.
    seed : int
    """
    train, test = parts.train, parts.test
    found = frontier(train, scorer_of_auc(train, auc, seed=seed, replicate=0), stages=stages)
    wanted = np.linspace(found[0].cost, found[-1].cost, POINTS)
    costs = np.array([item.cost for item in found])
    within = np.unique(np.searchsorted(costs, wanted, side="right") - 1)[::-1]  # dearest first
    trust = scorer_of_auc(test, auc, seed=seed, replicate=1)
    routed = [found[at].cascade.route(test, trust) for at in within]
    return Curve(
        f"cascade (AUC {auc:g})",
        f"Asks models in turn until a scorer of AUC {auc:g} trusts an answer; thresholds fit a budget.",
        costs[within],
        np.stack([one.cost for one in routed], axis=1),
        np.stack([one.score for one in routed], axis=1),
    )
