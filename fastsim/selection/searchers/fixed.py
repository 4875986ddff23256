"""Searchers that do not look where they are: every allocation, every single model, random ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from fastsim.errors import InputError
from fastsim.selection.costs import Costs
from fastsim.selection.exhaustive import correct_counts, survey
from fastsim.selection.searchers.registry import NoParams, searcher
from fastsim.selection.searchers.search import Search
from fastsim.selection.worlds import Allocation

__all__ = ["best_single", "exhaustive", "random_search"]


@searcher("exhaustive")
def exhaustive(search: Search, params: NoParams) -> None:
    """Every allocation; ties go to the lowest indices."""
    total = search.models**search.slots
    if not search.fits(total):
        raise InputError(
            f"exhaustive search evaluates {total:,} allocations; the budget is {search.budget:g}"
        )
    best = survey(search.world, top=1).top[0].allocation if not search.penalty else _least_penalised(search)
    calls = round(_over_all(Costs.of_calls(search.world)))
    search.charge(total, calls, _over_all(search.costs) if search.costs else 0.0)
    search.move(best)


def _least_penalised(search: Search) -> Allocation:
    worth = correct_counts(search.world) / search.questions
    if search.costs is not None:
        worth = worth - search.penalty * search.costs.table() / search.dearest
    return tuple(int(k) for k in np.unravel_index(int(worth.argmax()), worth.shape))


def _over_all(costs: Costs) -> float:
    """Sum of a cost over all allocations and questions."""
    slots, models, questions = costs.world.success.shape
    per_question = sum(part.mean() for _, part in costs.parts())
    return float(per_question * questions * models**slots)


@searcher("best_single")
def best_single(search: Search, params: NoParams) -> None:
    """The best of the allocations that give all modules the same model."""
    _take_best(search, ((k,) * search.slots for k in range(search.models)))


class Samples(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of random search.

    Attributes
    ----------
    samples : int
        Allocations to draw; fewer if the budget is smaller.
    """

    samples: Annotated[int, Meta(ge=1)] = 60


@searcher("random", params=Samples)
def random_search(search: Search, params: Samples) -> None:
    """The best of some allocations drawn uniformly, with replacement."""
    drawn = search.rng.integers(0, search.models, (params.samples, search.slots))
    _take_best(search, (tuple(row) for row in drawn.tolist()))


def _take_best(search: Search, allocations: Iterable[Allocation]) -> None:
    best = -np.inf
    for allocation in allocations:
        worth = search.objective(allocation)
        if worth > best:
            best = worth
            search.move(allocation)
