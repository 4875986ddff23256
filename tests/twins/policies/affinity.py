"""Twins of the plain policies that follow the prefix cache."""

from __future__ import annotations

from tests.twins.policies import Prompt, View, World, least, nearest, stateless


@stateless("prefix_affinity")
def prefix_affinity(view: View, request: Prompt, params: dict, world: World) -> int:
    """Longest match; ties to the fewest requests in flight, then to the lowest number."""
    return nearest(view)


@stateless("affinity_threshold")
def affinity_threshold(view: View, request: Prompt, params: dict, world: World) -> int:
    """Longest match if its share of the prompt is above ``theta``, else the least loaded."""
    best = nearest(view)
    if view.matched_tok(best) / request.prompt_tok > params["theta"]:
        return best
    return least(view.in_flight)


@stateless("cache_aware_guard")
def cache_aware_guard(view: View, request: Prompt, params: dict, world: World) -> int:
    """``affinity_threshold``, but the least loaded while the loads are out of balance."""
    most, fewest = max(view.in_flight), min(view.in_flight)
    if most - fewest > params["abs_threshold"] and most > params["rel_threshold"] * fewest:
        return least(view.in_flight)
    return affinity_threshold(view, request, params, world)
