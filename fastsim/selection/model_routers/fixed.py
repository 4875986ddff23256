"""Routers that learn nothing of questions: baselines, random mixing, and the oracle they are bounded by."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from fastsim.rng import generator
from fastsim.selection.model_routers.registry import UNUSED, Predict, model_router
from fastsim.selection.route_metrics import hull_members
from fastsim.selection.tables import Outcomes, Questions


@model_router("oracle", peeks=True)
def oracle(train: Outcomes, params: object, seed: int) -> Predict:
    """Knows every outcome: the bound on all routers, reached by none."""
    return lambda outcomes: outcomes.scores


@model_router("random")
def random(train: Outcomes, params: object, seed: int) -> Predict:
    """Mixes models at random, along the best line that single models span: RouterBench's zero router."""
    cost, quality = train.costs.mean(axis=0), train.scores.mean(axis=0)
    members = hull_members(cost, quality)
    steps = len(members) - 1

    def predict(questions: Questions) -> np.ndarray:
        # One draw u a question. The step from one member of the hull to the next pays up to a weight between
        # `left` and `left` + 1 of its own, so that turning the dial mixes two neighbours at a time.
        u = generator(seed, 0, "random_mix").random(questions.size)
        found = np.full((questions.size, len(train.models)), UNUSED)
        found[:, members[0]] = 0.0
        for step, (low, high) in enumerate(pairwise(members)):
            left = steps - 1 - step
            found[:, high] = found[:, low] + (cost[high] - cost[low]) * (left + u)
        return found

    return predict


@model_router("cheapest", fixed=True)
def cheapest(train: Outcomes, params: object, seed: int) -> Predict:
    """Always the model that costs least per call on average."""
    return _always(int(np.argmin(train.costs.mean(axis=0))), len(train.models))


@model_router("best_single", fixed=True)
def best_single(train: Outcomes, params: object, seed: int) -> Predict:
    """Always the model with the best mean score where it learnt."""
    return _always(int(np.argmax(train.scores.mean(axis=0))), len(train.models))


def _always(model: int, models: int) -> Predict:
    row = np.full(models, UNUSED)
    row[model] = 0.0
    return lambda questions: np.tile(row, (questions.size, 1))
