"""Small random worlds for the tests of model selection."""

from __future__ import annotations

import itertools

import numpy as np

from fastsim.selection.systems import SYSTEMS, get
from fastsim.selection.worlds import Allocation, Coupling, World

SHIPPED = ("locate_solve", "self_refine", "debate", "debate_swayed")
assert set(SHIPPED) <= set(SYSTEMS)


def random_world(
    system: str, seed: int, models: int = 3, questions: int = 70, *, coupled: bool = False
) -> World:
    """Successes by a coin of random weight; with a coupling of every slot with a random earlier one."""
    rng = np.random.default_rng(seed)
    graph = get(system)
    slots = len(graph.slots)
    weight = rng.random((slots, models, 1))
    success = rng.random((slots, models, questions)) < weight
    couplings = tuple(
        Coupling(slot, int(rng.integers(slot)), rng.random((models, questions)) < 0.3 * weight[slot])
        for slot in range(1, slots if coupled else 0)
    )
    return World(graph, tuple("ABCDEFGHIJ"[:models]), success, couplings)


def allocations(world: World) -> list[Allocation]:
    return list(itertools.product(range(len(world.models)), repeat=world.slots))
