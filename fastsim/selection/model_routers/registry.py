"""The registry of model routers, the decorator that enters one, and the rule by which all of them choose."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from fastsim.errors import InputError, nearest
from fastsim.selection.routed import Routed, evaluate
from fastsim.selection.tables import Floats, Ints, Outcomes, Questions
from fastsim.typed import check, named

NEEDS = ("features",)  # texts, or at least lengths
UNUSED = -np.inf  # prediction for a model that a router never chooses

Predict = Callable[[Any], Floats]
Fit = Callable[[Outcomes, Any, int], Predict]

MODEL_ROUTERS: dict[str, ModelRouter] = {}


class NoParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A router without parameters."""


@dataclass(frozen=True)
class ModelRouter:
    """A registered router.

    Attributes
    ----------
    name : str
    fit : callable
        ``fit(train, params, seed) -> predict``; ``predict(questions) -> float64[n, K]``: how good each
        model's answer will be, in any unit of its own; `UNUSED` for models that are out of question.
    needs : frozenset of str
        "features": tables need texts, or at least lengths.
    params : msgspec.Struct type
    fixed : bool
        It has no dial: cost does not enter.
    peeks : bool
        `predict` gets the outcomes themselves: a bound, not a router.
    doc : str
        First paragraph of its docstring.
    """

    name: str
    fit: Fit
    needs: frozenset[str]
    params: type[msgspec.Struct]
    fixed: bool
    peeks: bool
    doc: str

    def lacks(self, table: Outcomes) -> str:
        """What a table lacks for this router, as words; empty where it lacks nothing."""
        if "features" in self.needs and table.length is None:  # texts have lengths
            return "texts or lengths of questions"
        return ""


def model_router(
    name: str,
    *,
    needs: Iterable[str] = (),
    params: type[msgspec.Struct] = NoParams,
    fixed: bool = False,
    peeks: bool = False,
) -> Callable[[Fit], Fit]:
    """Register a router: the decorator of a function that learns from a table; see `ModelRouter`.

    Raises
    ------
    InputError
        If `needs` asks for something no table has.

    Examples
    --------
    >>> @model_router("first")
    ... def first(train, params, seed):
    ...     '''Always the first model of the table.'''
    ...     return lambda questions: np.tile(np.arange(len(train.models)) == 0, (questions.size, 1)) * 1.0
    """
    for need in needs:
        if need not in NEEDS:
            raise InputError(f"model router {name!r}: needs = {need!r} is not known; {nearest(need, NEEDS)}")

    def register(fit: Fit) -> Fit:
        doc = inspect.cleandoc(fit.__doc__ or "").split("\n\n")[0].replace("\n", " ")
        MODEL_ROUTERS[name] = ModelRouter(name, fit, frozenset(needs), params, fixed, peeks, doc)
        return fit

    return register


def get(name: str) -> ModelRouter:
    """Return the router of that name.

    Raises
    ------
    InputError
        If there is none; the message names the nearest.
    """
    return named("model router", name, MODEL_ROUTERS)


@dataclass(frozen=True, eq=False)
class FittedRouter:
    """A router that has learnt.

    Attributes
    ----------
    entry : ModelRouter
    models : tuple of str
    mean_cost : float64[K]
        What a call of each model cost on average where it learnt: what it weighs quality against.
    predict : callable
        See `ModelRouter.fit`.
    """

    entry: ModelRouter
    models: tuple[str, ...]
    mean_cost: Floats
    predict: Predict

    def quality(self, table: Outcomes) -> Floats:
        """float64[n, K]: predictions for a table's questions, of which only oracles see the outcomes.

        Raises
        ------
        InputError
            For a table of other models, or without what the router needs.
        """
        _check(self.entry, table)
        if table.models != self.models:
            raise InputError(f"{table.name}: its models are not those the router {self.entry.name} learnt")
        with _calm(self.entry):
            return self.predict(table if self.entry.peeks else table.questions)

    def route(self, table: Outcomes, weight: float = 0.0) -> Routed:
        """Route a table's questions: one call each.

        Parameters
        ----------
        table : Outcomes
        weight : float
            Quality that a unit of cost must buy, 0 or more; 0 asks for the best whatever it costs. For two
            models it is RouteLLM's threshold on the gain, over the difference of costs.
        """
        return evaluate(table, choose(self.quality(table), self.mean_cost, weight))

    def choose(self, questions: Questions, weight: float = 0.0) -> Ints:
        """int64[n]: the model for each question, where no outcomes are known."""
        with _calm(self.entry):
            return choose(self.predict(questions), self.mean_cost, weight)


def fit(
    name: str, train: Outcomes, params: Mapping[str, Any] | None = None, *, seed: int = 0
) -> FittedRouter:
    """Let a router learn from a table.

    Raises
    ------
    InputError
        For an unknown router or parameter, or a table without what the router needs.
    """
    entry = get(name)
    spec = check(entry.params, dict(params or {}), f"model router {name}")
    _check(entry, train)
    with _calm(entry):
        predict = entry.fit(train, spec, seed)
    return FittedRouter(entry, train.models, train.costs.mean(axis=0), predict)


def _calm(entry: ModelRouter) -> AbstractContextManager[Any]:
    """One thread of BLAS for routers that learn: on matrices this small its threads mostly wait."""
    if not entry.needs:
        return nullcontext()
    import sklearn.linear_model  # noqa: F401  first, for only libraries that are loaded can be limited
    from threadpoolctl import threadpool_limits

    return threadpool_limits(1)


def _check(entry: ModelRouter, table: Outcomes) -> None:
    lacking = entry.lacks(table)
    if lacking:
        raise InputError(f"{table.name} holds no {lacking}, which model router {entry.name} needs")


def choose(quality: Floats, cost: Floats, weight: float) -> Ints:
    """The model with the largest quality - weight x cost; of equals the cheapest on average, then the first.

    Parameters
    ----------
    quality : float64[n, K]
    cost : float64[K] or float64[n, K]
        Of a call, as expected; for each question apart where a delay is added to the price, say.
    weight : float
        0 or more.

    Returns
    -------
    int64[n]

    Notes
    -----
    RouterBench's rule argmax(lambda P - cost) (arXiv 2403.12031) with weight = 1 / lambda.
    """
    if not weight >= 0.0:
        raise InputError(f"weight is {weight:g}; it must be 0 or more")
    order = np.argsort(np.atleast_2d(cost).mean(axis=0), kind="stable")  # argmax takes the first of equals
    return order[np.argmax((quality - weight * cost)[:, order], axis=1)]


def weights(quality: Floats, mean_cost: Floats, points: int) -> Floats:
    """Settings of the dial that spread a router's mean cost evenly, from the dearest to the cheapest.

    Parameters
    ----------
    quality : float64[n, K]
    mean_cost : float64[K]
    points : int
        At most so many, at least 2.

    Returns
    -------
    float64[<= points], ascending from 0

    Notes
    -----
    A choice changes only where two models break even, at gain / difference of costs; mean expected cost falls
    as the weight grows. Only predictions enter, no outcomes.
    """
    dearer, cheaper = np.nonzero(mean_cost[:, None] > mean_cost[None, :])
    with np.errstate(invalid="ignore"):
        gain = quality[:, dearer] - quality[:, cheaper]
    even = gain / (mean_cost[dearer] - mean_cost[cheaper])
    even = even[np.isfinite(even) & (even > 0.0)]
    if not even.size:
        return np.zeros(1)
    grid = np.unique(np.quantile(even, np.linspace(0.0, 1.0, 8 * points), method="inverted_cdf"))
    grid = np.concatenate([[0.0], grid])  # at an even weight the cheaper model is chosen already
    cost = np.array([mean_cost[choose(quality, mean_cost, weight)].mean() for weight in grid])
    wanted = np.linspace(cost[0], cost[-1], points)
    nearest_to = np.abs(cost[None, :] - wanted[:, None]).argmin(axis=1)
    dial = grid[np.unique(np.concatenate([[0], nearest_to, [len(grid) - 1]]))]
    dial[-1] *= 1.0 + 1e-9  # past break-even, whatever rounding says
    return dial


def nested_params(settings: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Turn ``{"knn.k": 10}`` into ``{"knn": {"k": 10}}``.

    Raises
    ------
    InputError
        For a key without a router before its dot.
    """
    nested: dict[str, dict[str, Any]] = {}
    for key, value in settings.items():
        router, dot, parameter = key.partition(".")
        if not dot:
            raise InputError(f"setting {key!r} names no router; write it as router.key, as in knn.k=10")
        nested.setdefault(router, {})[parameter] = value
    return nested
