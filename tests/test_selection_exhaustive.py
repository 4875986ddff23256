"""Exhaustive search in packed bits beside bytes, and what is kept of it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from fastsim.errors import InputError
from fastsim.selection import _bits, exhaustive
from fastsim.selection.costs import Costs, Point, frontier, per_call
from fastsim.selection.exhaustive import correct_counts, survey
from fastsim.selection.latent import P1
from fastsim.selection.systems import Module, System, get
from fastsim.selection.worlds import Coupling, World
from tests.selection_worlds import SHIPPED, allocations, random_world
from tests.twins import selection as twin

small = pytest.mark.small


@small
@pytest.mark.parametrize("questions", [1, 63, 64, 65, 200])
def test_packing_keeps_every_bit_in_its_place(questions):
    sets = np.random.default_rng(questions).random((2, 3, questions)) < 0.4
    words = _bits.pack(sets)
    assert words.shape == (2, 3, -(-questions // 64))
    for i, j in np.ndindex(2, 3):
        bits = sum(int(word) << (64 * w) for w, word in enumerate(words[i, j]))
        assert bits == sum(1 << int(q) for q in np.flatnonzero(sets[i, j]))


@small
def test_ones_are_counted():
    for x in (0, 1, 3, 1 << 63, (1 << 64) - 1, 0x0123456789ABCDEF):
        word = np.uint64(x)
        assert _count_one(word) == x.bit_count()


def _count_one(word: np.uint64) -> int:
    """By the kernel, whose innermost step it is."""
    leaves = np.full((1, 8, 1), word, dtype=np.uint64)
    success = np.zeros((3, 2, 1), dtype=np.uint64)
    return int(_kernel(leaves, success, np.full((1, 3), -1), np.ones(3, np.int64))[0, 0])


def _kernel(leaves, success, partner, sizes):
    words = leaves.shape[2]
    counts = np.full((len(leaves), int(np.prod(sizes))), -1, dtype=np.int32)
    scratch = np.empty((4, words), np.uint64), np.empty((2, words), np.uint64)
    _bits.count(leaves, success, partner, sizes, *scratch, counts)
    return counts


@small
@pytest.mark.parametrize("seed", range(6))
def test_the_kernel_equals_its_bytewise_twin(seed):
    rng = np.random.default_rng(seed)
    questions, models, batch = int(rng.integers(1, 150)), int(rng.integers(1, 4)), int(rng.integers(1, 4))
    sizes = np.where(rng.random(3) < 0.3, 1, models).astype(np.int64)
    leaves = rng.random((batch, 8, questions)) < 0.5
    success = rng.random((3, 2 * models, questions)) < 0.5
    partner = rng.integers(-1, models, (batch, 3))
    packed = _kernel(_bits.pack(leaves), _bits.pack(success), partner, sizes)
    assert packed.tolist() == twin.count(leaves, success, partner, sizes)


@small
@pytest.mark.parametrize("system", SHIPPED)
@pytest.mark.parametrize("coupled", [False, True])
def test_every_allocation_counts_as_by_the_bytewise_twin(system, coupled):
    world = random_world(system, 11, models=2, questions=67, coupled=coupled)
    counts = correct_counts(world)
    assert {a: counts[a] for a in allocations(world)} == twin.correct_counts(world)


@pytest.mark.parametrize("system", SHIPPED)
def test_batches_of_any_size_give_the_same_table(system, monkeypatch):
    world = random_world(system, 2, models=4, questions=130)
    whole = correct_counts(world)
    monkeypatch.setattr(exhaustive, "BATCH_BYTES", 1)
    assert (correct_counts(world) == whole).all()


def ends_in(*last: Module) -> System:
    """Three generators, and what comes after them."""
    makers = tuple(Module(f"g{i}", "generate") for i in range(3))
    return System("s", (*makers, *last))


ODD = {
    "one module": System("s", (Module("a", "generate"),)),
    "two modules": System("s", (Module("a", "step"), Module("b", "step", ("a",)))),
    "a vote after generators": ends_in(Module("v", "vote", ("g0", "g1", "g2"))),
    "a vote, then a refiner": ends_in(
        Module("v", "vote", ("g0", "g1", "g2")),
        Module("c", "critique", ("v",)),
        Module("r", "refine", ("v", "c")),
    ),
    "a vote over refined drafts": System(
        "s",
        (
            Module("a", "generate"),
            Module("c", "critique", ("a",)),
            Module("r", "refine", ("a", "c")),
            Module("b", "generate"),
            Module("d", "debate_swayed", ("b", "r")),
            Module("v", "vote", ("r", "b", "d")),
        ),
    ),
    "votes over votes": ends_in(
        Module("v", "vote", ("g0", "g1", "g2")),
        Module("w", "vote", ("g2", "g1", "g0")),
        Module("d", "debate", ("w", "v", "g0")),
        Module("u", "vote", ("v", "w", "d")),
    ),
    "five steps": System("s", tuple(Module(f"m{i}", "step", (f"m{i - 1}",) if i else ()) for i in range(5))),
}


@small
@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("coupled", [False, True])
def test_systems_of_any_shape_count_as_allocation_by_allocation(name, coupled):
    system, rng = ODD[name], np.random.default_rng(8)
    slots = len(system.slots)
    pairs = [(slot, int(rng.integers(slot))) for slot in range(1, slots if coupled else 0)]
    couplings = tuple(Coupling(*pair, rng.random((3, 90)) < 0.3) for pair in pairs)
    world = World(system, ("A", "B", "C"), rng.random((slots, 3, 90)) < 0.5, couplings)
    counts = correct_counts(world)
    assert [counts[a] for a in allocations(world)] == [world.correct(a).sum() for a in allocations(world)]


@small
@pytest.mark.parametrize("seed", range(4))
def test_the_kernel_that_keeps_equals_its_twin(seed):
    rng = np.random.default_rng(seed)
    questions, top, batch, n = 9, int(rng.integers(1, 12)), 4, 5
    counts = rng.integers(0, questions + 1, (batch, n)).astype(np.int32)
    before, after = rng.integers(0, 3, batch).astype(float), rng.integers(0, 3, (batch, n)).astype(float)
    after = after[:1] if seed % 2 else after
    cheapest, at = np.full(questions + 1, np.inf), np.full(questions + 1, -1, dtype=np.int64)
    best = np.full((top, 2), -1, dtype=np.int64)
    for first in (0, 2):  # in two batches
        rows = slice(first, first + 2)
        _bits.keep(
            counts[rows], before[rows], after if len(after) == 1 else after[rows], first, cheapest, at, best
        )
    cost = (before[:, None] + after).ravel()
    wanted_at, wanted_best = twin.keep(counts.ravel(), cost, questions, top)
    assert at.tolist() == wanted_at
    assert [cost[place] for place in at if place >= 0] == cheapest[at >= 0].tolist()
    assert list(map(tuple, best.tolist())) == wanted_best


@small
@pytest.mark.parametrize("system", SHIPPED)
@pytest.mark.parametrize("coupled", [False, True])
def test_a_survey_keeps_the_best_and_the_exact_frontier(system, coupled):
    world = random_world(system, 4, models=2, questions=40, coupled=coupled)
    rng = np.random.default_rng(2)
    tokens = rng.integers(1, 100, world.success.shape)
    costs = Costs(world, per_call(world, [1.0, 2.5], output_price=[0.1, 0.3], output_tok=tokens))
    points = [Point(a, costs.of(a), world.accuracy(a)) for a in allocations(world)]
    found = survey(world, costs, top=5)
    assert found.allocations == len(points)
    best = sorted(points, key=lambda point: (-point.accuracy, point.allocation))[:5]
    assert [point.allocation for point in found.top] == [point.allocation for point in best]
    undominated = [
        point
        for point in points
        if not any(
            other.cost <= point.cost
            and other.accuracy >= point.accuracy
            and (other.cost, other.accuracy) != (point.cost, point.accuracy)
            for other in points
        )
    ]
    assert {p.allocation for p in found.frontier} <= {p.allocation for p in undominated}
    assert {(p.cost, p.accuracy) for p in found.frontier} == {(p.cost, p.accuracy) for p in undominated}
    assert found.frontier == frontier(points)


def test_ten_models_in_a_debate_take_a_table_of_a_million():
    law = dataclasses.replace(P1, models=10, train=100, test=1)
    world = law.draw(1, get("debate")).train
    counts = correct_counts(world)
    assert counts.size == 10**6
    rng = np.random.default_rng(0)
    for allocation in map(tuple, rng.integers(0, 10, (200, 6)).tolist()):
        assert counts[allocation] == world.correct(allocation).sum()
    assert survey(world).top[0].accuracy == counts.max() / 100


@small
def test_more_than_can_be_tried_is_refused():
    world = World(get("debate"), tuple(f"m{k}" for k in range(50)), np.ones((6, 50, 2), dtype=np.bool_))
    with pytest.raises(
        InputError, match=r"15,625,000,000 allocations; at most 10,000,000,000 can all be tried"
    ):
        survey(world)
    with pytest.raises(InputError, match="a table holds at most 100,000,000"):
        correct_counts(world)
    vote = System(
        "s", (*tuple(Module(f"m{i}", "generate") for i in range(3)), Module("v", "vote", ("m0", "m1", "m2")))
    )
    many = World(vote, tuple(f"m{k}" for k in range(300)), np.ones((3, 300, 2), dtype=np.bool_))
    with pytest.raises(
        InputError, match=r"costs of 300 models in 3 modules take a table of 27,000,000 entries"
    ):
        survey(many, Costs.of_calls(many))
    with pytest.raises(InputError, match="top is 0; it must lie in 1 to 10,000"):
        survey(random_world("debate", 0), top=0)
