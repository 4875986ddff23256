"""Every allocation of a world, evaluated in packed bits: tables of small ones, the best of large ones.

The slots before the last three are assigned in batches, in NumPy over packed words. For each assignment the
final answer is evaluated under all eight ways in which the last three slots can succeed; a kernel then picks
among these by the models' successes (Shannon's expansion), so that the innermost work for one allocation is
one choice and one population count a word. This needs the final answer to depend on a last slot only by its
success, so slots whose wrong answers are told apart, and partners of couplings, come before them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsim._interrupt import checkpoint, hears_interrupts
from fastsim._memory import require_memory
from fastsim.errors import InputError
from fastsim.selection import _bits
from fastsim.selection.costs import Costs, Point, frontier, spread
from fastsim.selection.roles import Answer
from fastsim.selection.worlds import Allocation, World

__all__ = ["Survey", "correct_counts", "survey"]

Counts = NDArray[np.int32]

BATCH_BYTES = 1 << 18  # leaves of one batch: stay in the second-level cache
MOST_IN_TABLE = 10**8
MOST_COSTS = 2 * 10**7
MOST = 10**10  # minutes


@dataclass(frozen=True)
class Survey:
    """What an exhaustive search keeps.

    Attributes
    ----------
    allocations : int
        How many were evaluated.
    top : list of Point
        The most accurate, best first, ties in order; their cost is 0 without prices.
    frontier : list of Point
        The Pareto frontier of cost and accuracy; the best alone without prices.
    """

    allocations: int
    top: list[Point]
    frontier: list[Point]


@hears_interrupts
def correct_counts(world: World) -> Counts:
    """How many questions every allocation gets right: int32[K, ..., K], an axis a slot.

    Raises
    ------
    InputError
        For more than 10^8 allocations; `survey` keeps only the best of them.
    """
    search = _Walk(world)
    if search.allocations > MOST_IN_TABLE:
        raise InputError(
            f"{len(world.models)} models in {world.slots} modules are {search.allocations:,} allocations; "
            f"a table holds at most {MOST_IN_TABLE:,}"
        )
    table = np.empty((search.prefixes, search.suffixes), dtype=np.int32)
    for first, last in search.batches():
        search.count(first, table[first:last])
    return table.reshape([len(world.models)] * world.slots)


@hears_interrupts
def survey(world: World, costs: Costs | None = None, top: int = 10) -> Survey:
    """Evaluate every allocation, and keep the most accurate and the Pareto frontier only.

    Parameters
    ----------
    world : World
    costs : Costs, optional
        Of the same world.
    top : int
        How many of the most accurate to keep, 1 to 10,000.

    Raises
    ------
    InputError
        For more than 10^10 allocations, or `top` out of range.
    """
    if not 1 <= top <= 10_000:
        raise InputError(f"top is {top}; it must lie in 1 to 10,000")
    search = _Walk(world)
    if search.allocations > MOST:
        raise InputError(
            f"{len(world.models)} models in {world.slots} modules are {search.allocations:,} allocations; at "
            f"most {MOST:,} can all be tried: name fewer models, or use another searcher"
        )
    kept = _Kept(search, costs, top)
    for first, last in search.batches():
        counts = np.empty((last - first, search.suffixes), dtype=np.int32)
        search.count(first, counts)
        kept.take(first, counts)
    return kept.result()


class _Walk:
    """The prefix slots, in batches, and the kernel over the last slots."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.models = len(world.models)
        depth = min(_bits.LEVELS, world.slots - _fixed_slots(world))
        self.prefix = world.slots - depth  # slots assigned in batches
        self.padding = _bits.LEVELS - depth
        self.prefixes = self.models**self.prefix
        self.suffixes = self.models**depth
        self.allocations = self.models**world.slots
        self.success = _bits.pack(world.success)
        self.coupled = {each.slot: (each.partner, _bits.pack(each.success)) for each in world.couplings}
        self.words = self.success.shape[2]
        self.valid = _bits.pack(np.ones(world.questions, dtype=np.bool_))
        self.sizes = np.array([1] * self.padding + [self.models] * depth, dtype=np.int64)
        self.levels = self._levels()
        self.scratch = np.empty((4, self.words), np.uint64), np.empty((2, self.words), np.uint64)

    def _levels(self) -> _bits.Words:
        """Successes as the kernel reads them; padding never succeeds, so that it takes the lower leaves."""
        levels = np.zeros((_bits.LEVELS, 2 * self.models, self.words), dtype=np.uint64)
        for slot in range(self.prefix, self.world.slots):
            level = self._level(slot)
            levels[level, : self.models] = levels[level, self.models :] = self.success[slot]
            if slot in self.coupled:
                levels[level, self.models :] = self.coupled[slot][1]
        return levels

    def _level(self, slot: int) -> int:
        return self.padding + slot - self.prefix

    def batches(self) -> Iterator[tuple[int, int]]:
        """Ranges of prefixes."""
        size = max(1, BATCH_BYTES // (_bits.LEAVES * self.words * 8))
        require_memory(
            min(size, self.prefixes) * self.suffixes * 4.0,
            f"all allocations of {self.models} models in the last modules",
        )
        for first in range(0, self.prefixes, size):
            checkpoint()
            yield first, min(first + size, self.prefixes)

    def count(self, first: int, counts: Counts) -> None:
        """Fill int32[B, suffixes] for the prefixes from `first` on."""
        assigned = self.assigned(first, len(counts))
        partner = np.full((len(counts), _bits.LEVELS), -1, dtype=np.int64)
        for slot, (other, _) in self.coupled.items():
            if slot >= self.prefix:
                partner[:, self._level(slot)] = assigned[other]
        leaves = self._leaves(assigned, len(counts))
        _bits.count(leaves, self.levels, partner, self.sizes, *self.scratch, counts)

    def assigned(self, first: int, size: int) -> NDArray[np.int64]:
        """Models of the prefix slots, int64[P, B]."""
        places = np.arange(first, first + size)
        if not self.prefix:
            return np.empty((0, size), dtype=np.int64)
        return np.array(np.unravel_index(places, [self.models] * self.prefix))

    def _leaves(self, assigned: NDArray[np.int64], size: int) -> _bits.Words:
        """The final answer under every way the last slots can succeed, uint64[B, 8, W]."""
        held = _Held(assigned)
        answers: list[Answer] = []
        for node in self.world.system.nodes:
            success = self._success(node.slot, assigned) if node.slot >= 0 else None
            answers.append(node.role.answer(success, [answers[i] for i in node.inputs], node.slot, held))
        final = answers[-1].right & self.valid
        shape = (size, *[2] * _bits.LEVELS, self.words)
        return np.ascontiguousarray(np.broadcast_to(final, shape)).reshape(size, _bits.LEAVES, self.words)

    def _success(self, slot: int, assigned: NDArray[np.int64]) -> Any:
        """Where a slot succeeds; axes are the batch, each of the last slots, and words."""
        if slot >= self.prefix:
            shape = [1] * (_bits.LEVELS + 2)
            shape[1 + self._level(slot)] = 2
            return np.array([0, ~np.uint64(0)], dtype=np.uint64).reshape(shape)
        mine = assigned[slot]
        success = self.success[slot][mine]
        if slot in self.coupled:
            other, instead = self.coupled[slot]
            success = np.where((assigned[other] == mine)[:, None], instead[mine], success)
        return success[:, None, None, None, :]


def _fixed_slots(world: World) -> int:
    """How many slots must come before the last ones: those whose model matters beside its success."""
    nodes = world.system.nodes
    origins: list[set[int]] = []
    fixed = {each.partner for each in world.couplings}
    for node in nodes:
        heard = {origin for i in node.inputs for origin in origins[i]}
        if node.role.compares:
            fixed |= heard
        origins.append({node.slot} if node.role.names else heard)
    return max(fixed, default=-1) + 1


@dataclass(frozen=True)
class _Held:
    """Comparisons of slots under a batch of assignments, for `roles`."""

    assigned: NDArray[np.int64]

    def same(self, a: int, b: int) -> Any:
        return _mask(self.assigned[a] == self.assigned[b])

    def first(self, a: int, b: int) -> Any:
        lower = self.assigned[a] < self.assigned[b]
        return _mask(lower | (self.assigned[a] == self.assigned[b]) if a < b else lower)


def _mask(truth: NDArray[np.bool_]) -> _bits.Words:
    return np.where(truth, ~np.uint64(0), np.uint64(0)).reshape(-1, 1, 1, 1, 1)


class _Kept:
    """The best so far, and the cheapest for every number of right answers."""

    def __init__(self, search: _Walk, costs: Costs | None, top: int) -> None:
        self.search, self.costs = search, costs
        questions = search.world.questions
        self.cheapest = np.full(questions + 1, np.inf)
        self.cheapest_at = np.full(questions + 1, -1, dtype=np.int64)
        self.top = np.full((top, 2), -1, dtype=np.int64)  # right answers, place
        self.before, self.after = self._cost_tables()

    def _cost_tables(self) -> tuple[Any, Any]:
        """Costs by prefix alone, float64[prefixes]; the others, float64[prefixes or 1, suffixes]."""
        search, total, models = self.search, self.search.world.slots, self.search.models
        parts = self.costs.parts() if self.costs else []
        early = [(slots, part) for slots, part in parts if max(slots) < search.prefix]
        late = [(slots, part) for slots, part in parts if max(slots) >= search.prefix]
        together = models ** len({slot for slots, _ in late for slot in slots})
        entries = max(search.prefixes, together)
        if entries > MOST_COSTS:
            raise InputError(
                f"costs of {models} models in {total} modules take a table of {entries:,} entries; at most "
                f"{MOST_COSTS:,} fit: name fewer models"
            )
        before = sum((spread(part, slots, total) for slots, part in early), np.zeros([1] * total))
        after = sum((spread(part, slots, total) for slots, part in late), np.zeros([1] * total))
        head, tail = [models] * search.prefix, [models] * (total - search.prefix)
        shared = all(size == 1 for size in after.shape[: search.prefix])
        before = np.broadcast_to(before.reshape(before.shape[: search.prefix]), head).reshape(search.prefixes)
        after = np.broadcast_to(after, [*([1] * search.prefix if shared else head), *tail])
        return np.ascontiguousarray(before), np.ascontiguousarray(after.reshape(-1, search.suffixes))

    def take(self, first: int, counts: Counts) -> None:
        """Look at the counts of the prefixes from `first` on."""
        rows = slice(first, first + len(counts))
        after = self.after if len(self.after) == 1 else self.after[rows]
        _bits.keep(counts, self.before[rows], after, first, self.cheapest, self.cheapest_at, self.top)

    def result(self) -> Survey:
        found = [self._point(place) for right, place in self.top if right >= 0]
        kept = [self._point(place) for place in self.cheapest_at if place >= 0]
        return Survey(self.search.allocations, found, frontier(kept))

    def _point(self, place: np.int64) -> Point:
        world = self.search.world
        where = np.unravel_index(place, [self.search.models] * world.slots)
        allocation: Allocation = tuple(int(k) for k in where)
        cost = self.costs.of(allocation) if self.costs else 0.0
        return Point(allocation, cost, world.accuracy(allocation))
