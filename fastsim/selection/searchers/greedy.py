"""End-to-end greedy: change one module if the whole system gets better by it."""

from __future__ import annotations

from fastsim.selection.costs import neighbours
from fastsim.selection.searchers.registry import NoParams, searcher
from fastsim.selection.searchers.search import Search
from fastsim.selection.worlds import Allocation

__all__ = ["climb", "coordinate_greedy", "steepest_greedy", "with_model"]


@searcher("coordinate_greedy")
def coordinate_greedy(search: Search, params: NoParams) -> None:
    """Module after module, the best model if it is strictly better; ends when a round changes nothing."""
    now = search.start
    search.move(now)
    worth, still, slot = search.objective(now), 0, 0
    while still < search.slots:
        best = now
        for k in range(search.models):
            if k != now[slot]:
                other = with_model(now, slot, k)
                value = search.objective(other)
                if value > worth:
                    best, worth = other, value
        still = 0 if best != now else still + 1
        now = best
        search.move(now)
        slot = (slot + 1) % search.slots


@searcher("steepest_greedy")
def steepest_greedy(search: Search, params: NoParams) -> None:
    """The best of all changes of one module, while that is strictly better."""
    search.move(search.start)
    climb(search, search.start, rounds=-1)


def climb(search: Search, start: Allocation, rounds: int) -> Allocation:
    """Take the best single change, at most `rounds` times; -1 for as long as it helps."""
    now, worth = start, search.objective(start)
    while rounds:
        best = now
        for other in neighbours(now, search.models):
            value = search.objective(other)
            if value > worth:
                best, worth = other, value
        if best == now:
            break
        now = best
        search.move(now)
        rounds -= 1
    return now


def with_model(allocation: Allocation, slot: int, k: int) -> Allocation:
    """The allocation with model k at a slot."""
    return (*allocation[:slot], k, *allocation[slot + 1 :])
