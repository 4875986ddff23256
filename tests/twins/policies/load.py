"""Twins of the policies that look at load only, or at nothing."""

from __future__ import annotations

from tests.twins.policies import Prompt, View, World, least, stateless, twin


@stateless("random")
def random_replica(view: View, request: Prompt, params: dict, world: World) -> int:
    """Any replica, all equally likely."""
    return world.draw.below(len(view.in_flight))


@twin("round_robin")
class RoundRobin:
    """One after the other, from replica 0."""

    def __init__(self, params: dict, world: World):
        self.turn = 0

    def choose(self, view: View, request: Prompt) -> int:
        """The next."""
        self.turn += 1
        return (self.turn - 1) % len(view.in_flight)


@stateless("least_loaded")
def least_loaded(view: View, request: Prompt, params: dict, world: World) -> int:
    """Fewest requests in flight; ties to the lowest number."""
    return least(view.in_flight)


@stateless("power_of_two")
def power_of_two(view: View, request: Prompt, params: dict, world: World) -> int:
    """The less loaded of two distinct random replicas; a tie keeps the first drawn.

    The second is drawn from the others: ``below(n - 1)``, moved up by one from the first on. A single replica
    draws nothing.
    """
    replicas = len(view.in_flight)
    if replicas == 1:
        return 0
    first = world.draw.below(replicas)
    second = world.draw.below(replicas - 1)
    if second >= first:
        second += 1
    return second if view.in_flight[second] < view.in_flight[first] else first


@stateless("least_work")
def least_work(view: View, request: Prompt, params: dict, world: World) -> int:
    """Fewest unfinished tokens; ties to the lowest number."""
    return least(view.work)
