"""LLMSelector: one module a round, its models scored question by question by a diagnoser.

Chen et al., "Optimizing Model Selection for Compound AI Systems" (arXiv 2502.14815), algorithm 1, and where
the paper leaves a choice the authors' code (LLMSELECTOR/LLMSELECTOR at 29e22f3, `optimizer.py`).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from fastsim.selection.searchers.greedy import climb, with_model
from fastsim.selection.searchers.registry import searcher
from fastsim.selection.searchers.search import BudgetSpent, Search
from fastsim.selection.worlds import Allocation

__all__ = ["Diagnosed", "llmselector", "llmselector_two_stage", "votes"]

Floats = NDArray[np.float64]


class Diagnosed(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Parameters of LLMSelector.

    Attributes
    ----------
    scoring : str
        ``"paper"``: (1 if not blamed) + gamma (1 if right). ``"repository"``: 1 if right, as its notebooks
        run; no diagnoser is asked, and ties go to the model met first.
    gamma : float
        Weight of a right final answer; any value above 0 gives the same votes.
    diagnoser : float
        Probability that the diagnoser is right, drawn afresh at every evaluation.
    budget_rule : str
        ``"paper"``: a round costs K evaluations, and one that would exceed the budget is not begun.
        ``"repository"``: it costs K - 1, as if the present allocation were not run again.
    aggregate : str
        ``"votes"``: on how many questions a model is among the best. ``"mean"``: mean score.
    max_rounds : int
        The end, like the budget, of noise that never settles and of ties that lead round in a circle.
    """

    scoring: Literal["paper", "repository"] = "paper"
    gamma: Annotated[float, Meta(ge=0.0)] = 0.1
    diagnoser: Annotated[float, Meta(ge=0.0, le=1.0)] = 1.0
    budget_rule: Literal["paper", "repository"] = "paper"
    aggregate: Literal["votes", "mean"] = "votes"
    max_rounds: Annotated[int, Meta(ge=1)] = 1000


@searcher("llmselector", params=Diagnosed)
def llmselector(search: Search, params: Diagnosed) -> None:
    """Module after module, the model that is among the best on most questions; ends when L rounds agree."""
    _rounds(search, params, search.start)


def _rounds(search: Search, params: Diagnosed, start: Allocation) -> None:
    now, settled = start, 0
    search.move(now)
    for turn in range(params.max_rounds):
        slot = turn % search.slots
        best = with_model(now, slot, _elect(search, params, now, slot))
        settled = settled + 1 if best == now else 0
        now = best
        search.move(now)
        if settled >= search.slots:
            return
    raise BudgetSpent


def _elect(search: Search, params: Diagnosed, now: Allocation, slot: int) -> int:
    scores = _scores(search, params, now, slot)
    worth = scores.mean(axis=1) if params.aggregate == "mean" else votes(scores) / search.questions
    worth = worth - search.handicap(slot)  # after the mean: inside a question's argmax it breaks all ties
    best = np.flatnonzero(worth >= worth.max() - 1e-12)
    if params.scoring == "repository" and params.aggregate == "votes" and len(best) > 1:
        return _met_first(scores, best)
    return int(best[0])


def _scores(search: Search, params: Diagnosed, now: Allocation, slot: int) -> Floats:
    """Scores of all models at a slot on every question, float64[K, Q]."""
    correct = search.evaluate_models(now, slot, again=params.budget_rule == "paper")
    if params.scoring == "repository":
        return correct.astype(np.float64)
    blameless = ~search.blamed_models(now, slot, params.diagnoser)
    return blameless.astype(np.float64) + params.gamma * correct


def votes(scores: Any) -> NDArray[np.int64]:
    """On how many questions each model is among the best: approval voting.

    Parameters
    ----------
    scores : array_like, shape (K, Q)

    Returns
    -------
    int64[K]
    """
    table = np.asarray(scores)
    return (table == table.max(axis=0)).sum(axis=1)


def _met_first(scores: Floats, candidates: NDArray[np.intp]) -> int:
    """Of models with equal votes the one that is among the best on the earliest question, then the first."""
    among = (scores == scores.max(axis=0))[candidates]
    return int(candidates[among.argmax(axis=1).argmin()])


@searcher("llmselector_two_stage", params=Diagnosed)
def llmselector_two_stage(search: Search, params: Diagnosed) -> None:
    """LLMSelector from a better start: blameless models on half of the questions, then one change.

    First every slot gets the model that is blamed on fewest of the sampled questions while the other slots
    are as they start; then the best change of one slot is made. That sweep is our reading of the code.
    """
    half = np.sort(search.rng.permutation(search.questions)[: (search.questions + 1) // 2])
    search.move(search.start)
    chosen = []
    for slot in range(search.slots):
        blameless = np.empty((search.models, len(half)))
        for k in range(search.models):
            allocation = with_model(search.start, slot, k)
            search.evaluate(allocation, half)
            blameless[k] = ~search.blamed(allocation, slot, params.diagnoser, half)
        worth = blameless.mean(axis=1) - search.handicap(slot)
        chosen.append(int(worth.argmax()))
    swept = tuple(chosen)
    search.move(swept)
    _rounds(search, params, climb(search, swept, rounds=1))
