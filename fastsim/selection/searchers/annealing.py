"""Simulated annealing: a baseline that any clever searcher should beat."""

from __future__ import annotations

import math
from typing import Annotated

import msgspec
from msgspec import Meta

from fastsim.errors import InputError
from fastsim.selection.searchers.greedy import with_model
from fastsim.selection.searchers.registry import searcher
from fastsim.selection.searchers.search import Search

__all__ = ["Annealing", "simulated_annealing"]


class Annealing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of simulated annealing.

    Attributes
    ----------
    steps : int
        Proposals; fewer if the budget is smaller.
    hot, cold : float
        First and last temperature, in accuracy; geometric between.
    """

    steps: Annotated[int, Meta(ge=1)] = 200
    hot: Annotated[float, Meta(gt=0.0)] = 0.05
    cold: Annotated[float, Meta(gt=0.0)] = 0.001


@searcher("simulated_annealing", params=Annealing)
def simulated_annealing(search: Search, params: Annealing) -> None:
    """Random changes of one module, taken if better, else with probability exp(change / temperature).

    The best allocation met is the result.
    """
    if params.cold > params.hot:
        raise InputError(
            f"searcher simulated_annealing: cold = {params.cold:g} must not be above hot = {params.hot:g}"
        )
    now = best = search.start
    worth = top = search.objective(now)
    search.move(now)
    steps = int(min(params.steps, search.budget - 1))
    for step in range(steps if search.models > 1 else 0):
        slot = int(search.rng.integers(search.slots))
        k = int(search.rng.integers(search.models - 1))
        other = with_model(now, slot, k + (k >= now[slot]))
        value = search.objective(other)
        temperature = params.hot * (params.cold / params.hot) ** (step / max(steps - 1, 1))
        if value >= worth or search.rng.random() < math.exp((value - worth) / temperature):
            now, worth = other, value
            search.move(now)
        if value > top:
            best, top = other, value
    if now != best:
        search.move(best)
