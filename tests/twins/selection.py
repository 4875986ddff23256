"""A compound system question by question: answers as numbers, 0 right and m + 1 the wrong one of model m."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from fastsim.selection.systems import SYSTEMS
from fastsim.selection.worlds import World

Answers = dict[str, int]


def run(world: World, allocation: tuple[int, ...], q: int) -> tuple[bool, list[bool], list[bool]]:
    """One question: whether the final answer is right, whom to blame, and who was called, slot by slot."""
    can = [_can(world, allocation, slot, q) for slot in range(world.slots)]
    right, blame, called = RULES[world.system.name](allocation, can)
    return right, [b and not right for b in blame], called


def _can(world: World, allocation: tuple[int, ...], slot: int, q: int) -> bool:
    k = allocation[slot]
    for coupling in world.couplings:
        if coupling.slot == slot and allocation[coupling.partner] == k:
            return bool(coupling.success[k, q])
    return bool(world.success[slot, k, q])


def _locate_solve(allocation: Any, can: list[bool]) -> Any:
    return can[0] and can[1], [not can[0], not can[1]], [True, True]


def _self_refine(allocation: Any, can: list[bool]) -> Any:
    good, found, mended = can
    blame = [not good, not good and not found, not good and found and not mended]
    return good or (found and mended), blame, [True, True, not good and found]


def _debate(debater: Callable[[list[int], bool], int]) -> Callable[[Any, list[bool]], Any]:
    def rule(allocation: Any, can: list[bool]) -> Any:
        first = [0 if can[i] else allocation[i] + 1 for i in range(3)]
        last = [debater(first[i:] + first[:i], can[3 + i]) for i in range(3)]
        final = next((a for a in last if last.count(a) >= 2), last[0])
        return final == 0, [a != 0 for a in first + last], [True] * 6

    return rule


def _keeps_own(given: list[int], can: bool) -> int:
    return 0 if 0 in given and can else given[0]


def _swayed(given: list[int], can: bool) -> int:
    wrong = [answer for answer in given if answer]
    if not wrong or (0 in given and can):
        return 0
    return given[0] if given[0] else min(wrong)


RULES = {
    "locate_solve": _locate_solve,
    "self_refine": _self_refine,
    "debate": _debate(_keeps_own),
    "debate_swayed": _debate(_swayed),
}
assert set(RULES) <= set(SYSTEMS)


def correct_counts(world: World) -> dict[tuple[int, ...], int]:
    """How many questions each allocation gets right, one byte a question and one question at a time."""
    places = itertools.product(range(len(world.models)), repeat=world.slots)
    return {a: sum(run(world, a, q)[0] for q in range(world.questions)) for a in places}


def count(leaves: Any, success: Any, partner: Any, sizes: Any) -> list[list[int]]:
    """What the kernel `count` fills, from bytes: bool[B, 8, Q], bool[3, 2 K, Q], int[B, 3], three sizes."""
    models, questions = len(success[0]) // 2, len(leaves[0][0])
    counts = []
    for b, leaf in enumerate(leaves):
        row = []
        for chosen in itertools.product(*(range(size) for size in sizes)):
            at = [k + models if partner[b][level] == k else k for level, k in enumerate(chosen)]
            ways = [
                sum(4 >> level for level in range(3) if success[level][at[level]][q])
                for q in range(questions)
            ]
            row.append(sum(bool(leaf[way][q]) for q, way in enumerate(ways)))
        counts.append(row)
    return counts


def keep(counts: Any, cost: Any, questions: int, top: int) -> tuple[list[int], list[tuple[int, int]]]:
    """What the kernel `keep` keeps of all: the cheapest by right answers (-1: none), and the best."""
    places = range(len(counts))
    cheapest = [
        min((place for place in places if counts[place] == right), key=lambda p: (cost[p], p), default=-1)
        for right in range(questions + 1)
    ]
    best = sorted(places, key=lambda place: (-counts[place], place))[:top]
    return cheapest, [(int(counts[place]), place) for place in best]
