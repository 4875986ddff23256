"""Searchers for allocations: one function and one registry entry each, one contract, one accounting."""

from fastsim.selection.searchers import annealing, fixed, greedy, halving, llmselector
from fastsim.selection.searchers.registry import SEARCHERS, get, searcher
from fastsim.selection.searchers.search import Found, Search, Step, search

__all__ = ["SEARCHERS", "Found", "Search", "Step", "get", "search", "searcher"]

_FAMILIES = (fixed, greedy, llmselector, halving, annealing)  # each enters its searchers
