"""Successive halving: many allocations on few questions, fewer of them on more."""

from __future__ import annotations

import math
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from fastsim.selection.searchers.registry import searcher
from fastsim.selection.searchers.search import Search
from fastsim.selection.worlds import Allocation

__all__ = ["Halving", "successive_halving"]


class Halving(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of successive halving.

    Attributes
    ----------
    candidates : int
        Allocations to begin with: all of them if there are no more, else the start and as many drawn.
    first_questions : int
        Questions of the first round; they double from round to round.
    error : float
        Probability that the confidence bounds of a search fail somewhere.
    """

    candidates: Annotated[int, Meta(ge=1)] = 256
    first_questions: Annotated[int, Meta(ge=1)] = 16
    error: Annotated[float, Meta(gt=0.0, lt=1.0)] = 0.05


@searcher("successive_halving", params=Halving)
def successive_halving(search: Search, params: Halving) -> None:
    """Drops what confidence bounds rule out, and at least the worse half, while the questions double.

    The bounds are Hoeffding's, shared over candidates and rounds by Bonferroni; they hold for questions drawn
    without replacement too (Hoeffding 1963, section 6). Candidates meet the same questions in random order.
    """
    alive = _candidates(search, params)
    order = search.rng.permutation(search.questions)
    rounds = 1 + math.ceil(max(0.0, math.log2(search.questions / params.first_questions)))
    right = np.zeros(len(alive), dtype=np.int64)
    seen, upto = 0, min(params.first_questions, search.questions)
    width = math.log(2.0 * len(alive) * rounds / params.error) / 2.0
    while True:
        fresh = order[seen:upto]
        for i, allocation in enumerate(alive):
            right[i] += int(search.evaluate(allocation, fresh).sum())
        seen = upto
        worth = right / seen - [search.toll(allocation, order[:seen]) for allocation in alive]
        search.move(alive[int(worth.argmax())])
        if seen == search.questions or len(alive) == 1:
            return
        possible = worth + 2.0 * math.sqrt(width / seen) >= worth.max()
        ranked = np.argsort(-worth, kind="stable")[: (len(alive) + 1) // 2]
        stay = np.sort(ranked[possible[ranked]])
        alive, right = [alive[i] for i in stay], right[stay]
        upto = min(2 * seen, search.questions)


def _candidates(search: Search, params: Halving) -> list[Allocation]:
    shape = [search.models] * search.slots
    if search.models**search.slots <= params.candidates:
        return [tuple(place) for place in np.ndindex(*shape)]
    drawn = search.rng.integers(0, search.models, (params.candidates - 1, search.slots))
    return list(dict.fromkeys([search.start, *map(tuple, drawn.tolist())]))
