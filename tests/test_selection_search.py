"""Searchers: the contract over the registry, each beside exhaustive search, and the theorem's case."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastsim.errors import InputError
from fastsim.selection.costs import Costs, neighbours
from fastsim.selection.exhaustive import correct_counts
from fastsim.selection.latent import demo_1
from fastsim.selection.searchers import SEARCHERS, Found, Search, search, searcher
from fastsim.selection.searchers.llmselector import votes
from fastsim.selection.systems import Module, System
from fastsim.selection.worlds import World
from tests.selection_worlds import SHIPPED, allocations, random_world

small = pytest.mark.small
every_searcher = pytest.mark.parametrize("name", list(SEARCHERS))
A, B, C, D, E = range(5)
FREE = {"exhaustive"}  # needs more evaluations than a small budget has


def run(world: World, name: str, seed: int = 0, **given) -> Found:
    return search(world, name, rng=np.random.default_rng(seed), **given)


@small
@every_searcher
@pytest.mark.parametrize("system", SHIPPED)
def test_every_searcher_keeps_the_contract(name, system):
    for seed in range(3):
        world = random_world(system, seed, models=2, coupled=bool(seed % 2))
        costs = Costs.of_calls(world)
        found = run(world, name, seed, costs=costs)
        assert world.allocation(found.allocation) == found.allocation == found.path[-1].allocation
        assert found.accuracy == world.accuracy(found.allocation)
        assert found.accuracy <= correct_counts(world).max() / world.questions
        assert found.cost == pytest.approx(costs.of(found.allocation))
        steps = [step.evaluated for step in found.path]
        assert steps == sorted(steps)
        assert 0 <= steps[-1] <= found.evaluated > 0
        assert found.money == pytest.approx(found.model_calls)  # each call costs 1
        modules = world.slots * world.questions * found.evaluated
        assert 0 < found.model_calls <= modules + 1e-6
        assert not found.exhausted
        assert found == run(world, name, seed, costs=costs)


@small
@pytest.mark.parametrize("name", sorted(set(SEARCHERS) - FREE))
def test_no_searcher_overdraws_its_budget(name):
    world = random_world("debate", 2)
    for budget in (1, 2, 7, 20):
        found = run(world, name, budget=budget)
        assert found.evaluated <= budget
        assert world.allocation(found.allocation) == found.allocation


@small
def test_an_exhaustive_search_beyond_the_budget_is_refused():
    with pytest.raises(InputError, match=r"exhaustive search evaluates 729 allocations; the budget is 100"):
        run(random_world("debate", 0), "exhaustive", budget=100)


@small
@every_searcher
@pytest.mark.parametrize("seed", range(4))
def test_no_searcher_does_worse_than_its_start_by_more_than_it_may(name, seed):
    """Those that compare with where they are never end below it; none is better than the best of all."""
    world = random_world("self_refine", seed)
    start = (2, 1, 0)
    found = run(world, name, seed, start=start)
    if name in ("coordinate_greedy", "steepest_greedy", "simulated_annealing", "exhaustive"):
        assert found.accuracy >= world.accuracy(start)


@small
@pytest.mark.parametrize("system", SHIPPED)
@pytest.mark.parametrize("coupled", [False, True])
def test_exhaustive_search_finds_the_first_best(system, coupled):
    world = random_world(system, 5, models=2, questions=30, coupled=coupled)
    found = run(world, "exhaustive")
    best = max(allocations(world), key=lambda a: (world.accuracy(a), [-k for k in a]))
    assert found.allocation == best
    assert found.evaluated == len(allocations(world))
    calls = Costs.of_calls(world)
    assert found.model_calls == round(sum(calls.of(a) for a in allocations(world)) * world.questions)


@small
@pytest.mark.parametrize("seed", range(5))
def test_best_single_is_the_best_of_the_diagonal(seed):
    world = random_world("debate", seed)
    single = max(((k,) * 6 for k in range(3)), key=lambda a: (world.accuracy(a), -a[0]))
    found = run(world, "best_single")
    assert (found.allocation, found.evaluated) == (single, 3)


@small
@pytest.mark.parametrize("name", ["steepest_greedy", "coordinate_greedy"])
@pytest.mark.parametrize("system", SHIPPED)
def test_greedy_ends_where_no_single_change_helps(name, system):
    for seed in range(4):
        world = random_world(system, seed)
        found = run(world, name, seed)
        assert all(world.accuracy(other) <= found.accuracy for other in neighbours(found.allocation, 3))


@small
def test_random_search_is_the_best_of_its_draws():
    world = random_world("self_refine", 1)
    found = run(world, "random", params={"samples": 400})  # of 27 allocations: misses one with 1e-5
    assert found.accuracy == correct_counts(world).max() / world.questions
    assert found.evaluated == 400


@small
def test_halving_that_sees_everything_is_exhaustive():
    for seed in range(5):
        world = random_world("self_refine", seed)
        found = run(world, "successive_halving", params={"first_questions": 70})
        assert found.accuracy == correct_counts(world).max() / world.questions
        assert found.evaluated == 27


def test_halving_finds_a_clear_winner_for_a_fraction_of_the_evaluations():
    lost = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        success = rng.random((3, 3, 800)) < 0.4
        success[:, 1] = rng.random((3, 800)) < 0.9
        world = World(random_world("self_refine", 0).system, ("A", "B", "C"), success)
        found = run(world, "successive_halving", seed)
        assert found.evaluated < 27 / 4
        lost += found.accuracy < correct_counts(world).max() / 800 - 0.05
    assert lost == 0


@small
def test_annealing_gives_back_the_best_it_met():
    world = random_world("debate", 7)
    found = run(world, "simulated_annealing", params={"hot": 10.0, "cold": 10.0})  # a random walk
    assert found.accuracy == max(world.accuracy(step.allocation) for step in found.path)
    assert found.evaluated == 201


@small
def test_the_lectures_example_traps_greedy_and_not_llmselector():
    train, _ = demo_1()
    best = train.accuracy((A, B))
    ends = {
        name: [search(train, name, start=(a, b)).accuracy for a in range(5) for b in range(5)]
        for name in ("steepest_greedy", "coordinate_greedy", "llmselector")
    }
    assert {name: sum(end < best for end in each) for name, each in ends.items()} == {
        "steepest_greedy": 8,
        "coordinate_greedy": 6,
        "llmselector": 0,
    }
    found = search(train, "llmselector", start=(C, C))
    assert [step.allocation for step in found.path] == [(C, C), (A, C), (A, B), (A, B), (A, B)]
    assert [step.evaluated for step in found.path] == [0, 5, 10, 15, 20]


@pytest.mark.parametrize("accuracy", [0.9, 0.8, 0.7, 0.6])
def test_llmselector_escapes_under_a_noisy_diagnoser_too(accuracy):
    train, _ = demo_1()
    for a in range(5):
        for b in range(5):
            params = {"diagnoser": accuracy}
            assert run(train, "llmselector", start=(a, b), params=params, budget=1000).allocation == (A, B)


@small
def test_budget_rules_count_the_present_allocation_or_not():
    train, _ = demo_1()
    took = {
        rule: search(train, "llmselector", {"budget_rule": rule}, start=(C, C)).evaluated
        for rule in ("paper", "repository")
    }
    assert took == {"paper": 20, "repository": 16}
    short = search(train, "llmselector", start=(C, C), budget=19)
    assert (short.evaluated, short.exhausted, short.allocation) == (15, True, (A, B))
    short = search(train, "llmselector", {"budget_rule": "repository"}, start=(C, C), budget=16)
    assert (short.evaluated, short.exhausted) == (16, False)


@small
def test_any_gamma_above_0_gives_the_same_path():
    def path(gamma: float, seed: int):
        params = {"gamma": gamma, "diagnoser": 0.8}
        return run(random_world("debate", seed), "llmselector", params=params, budget=60).path

    paths = {gamma: [path(gamma, seed) for seed in range(6)] for gamma in (0.0, 1e-6, 0.1, 0.5, 3.0)}
    assert paths[1e-6] == paths[0.1] == paths[0.5] == paths[3.0]
    assert paths[0.0] != paths[0.1]


@small
def test_the_repositorys_score_climbs_end_to_end_and_pays_no_diagnoser():
    """Its votes are the questions a model gets right, and those that no model does."""
    world = random_world("debate", 3)
    found = run(world, "llmselector", params={"scoring": "repository"}, budget=300)
    assert found.diagnoses == 0
    for before, after in zip(found.path, found.path[1:], strict=False):
        slot = found.path.index(before) if before.allocation != after.allocation else None
        if slot is None:
            continue
        changed = [i for i in range(6) if before.allocation[i] != after.allocation[i]]
        (at,) = changed
        rivals = [(*before.allocation[:at], k, *before.allocation[at + 1 :]) for k in range(3)]
        assert world.accuracy(after.allocation) == max(map(world.accuracy, rivals))


@small
def test_ties_of_the_repository_go_to_the_model_met_first():
    success = np.zeros((2, 3, 4), dtype=np.bool_)
    success[1] = True
    success[0, 2, :2], success[0, 1, 2:] = True, True  # B and C are right twice; C on the first question
    world = World(random_world("locate_solve", 0).system, ("A", "B", "C"), success)
    ours = search(world, "llmselector", start=(0, 0)).path[1].allocation
    theirs = search(world, "llmselector", {"scoring": "repository"}, start=(0, 0)).path[1].allocation
    assert (ours, theirs) == ((1, 0), (2, 0))


@small
def test_noise_is_fresh_at_every_evaluation_and_spares_right_answers():
    world = random_world("locate_solve", 1, questions=20_000)
    asked = Search(world, costs=None, budget=99.0, start=(0, 0), penalty=0.0, rng=np.random.default_rng(0))
    right = asked.evaluate_models((0, 0), 0)
    truth = np.array([world.to_blame((k, 0), 0) for k in range(3)])
    first, again = (asked.blamed_models((0, 0), 0, 0.7) for _ in range(2))
    assert not (first & right).any()
    wrong = ~right
    for k in range(3):
        n = int(wrong[k].sum())
        error = 4.0 * np.sqrt(0.21 / n)
        assert abs((first[k] != truth[k])[wrong[k]].mean() - 0.3) < error
        assert abs((first[k] != again[k])[wrong[k]].mean() - 2 * 0.3 * 0.7) < error
    assert asked.diagnoses == 2 * int(wrong.sum())


@small
def test_the_two_stage_variant_starts_from_blameless_models():
    train, _ = demo_1()
    found = search(train, "llmselector_two_stage", start=(C, C))
    assert found.path[1].allocation == (A, B)  # after the sweep over half of the questions
    assert found.path[1].evaluated == 5.0
    assert found.allocation == (A, B)


# --- the theorem ---


@st.composite
def monotone_worlds(draw):
    """Systems whose end-to-end answer is monotone, models nested at every slot, and a unique optimum.

    A question can be done by the models that are able enough for it. For uniqueness there is one question a
    slot that only its best model saves.
    """
    chain = draw(st.booleans())
    slots = draw(st.integers(1, 5)) if chain else 3
    models, questions = draw(st.integers(2, 4)), draw(st.integers(0, 12))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    names = [f"m{i}" for i in range(slots)]
    steps = tuple(Module(name, "step", tuple(names[i - 1 : i])) for i, name in enumerate(names))
    system = System("chain", steps) if chain else random_world("self_refine", 0).system
    able = rng.random((slots, models)) ** draw(st.sampled_from([0.3, 1.0, 3.0]))
    hard = np.zeros((slots, slots + questions))
    hard[:, slots:] = rng.random((slots, questions))
    for slot in range(slots):
        second, best = np.sort(able[slot])[-2:]
        hard[slot, slot] = (second + best) / 2
    if not chain:
        hard[1, 0] = hard[0, 1] = hard[0, 2] = 2.0  # nobody finds the one mistake; nobody drafts the others
    success = able[:, :, None] > hard[:, None, :]
    return World(system, tuple("ABCD"[:models]), success), tuple(rng.integers(0, models, slots).tolist())


@given(monotone_worlds())
@settings(max_examples=400, deadline=None, derandomize=True)
def test_in_the_theorems_case_llmselector_is_at_the_optimum_after_one_round_a_module(case):
    """Both monotonicities and a unique optimum (arXiv 2502.14815, theorem 4.1)."""
    world, start = case
    counts = correct_counts(world)
    assert (counts == counts.max()).sum() == 1
    optimum = tuple(int(k) for k in np.unravel_index(int(counts.argmax()), counts.shape))
    for params in ({}, {"budget_rule": "repository"}, {"aggregate": "mean"}):
        found = search(world, "llmselector", params, start=start)
        assert found.path[world.slots].allocation == optimum
        assert found.allocation == optimum


def test_the_theorems_case_is_not_empty_and_needs_the_diagnoser():
    """Over the same worlds greedy ends below the optimum somewhere."""
    rng = np.random.default_rng(3)
    unique = stuck = 0
    for _ in range(200):
        hard, able = rng.random((3, 1, 12)), rng.random((3, 3, 1))
        system = System(
            "chain", (Module("a", "step"), Module("b", "step", ("a",)), Module("c", "step", ("b",)))
        )
        world = World(system, ("A", "B", "C"), hard < able)
        counts = correct_counts(world)
        if (counts == counts.max()).sum() == 1:
            unique += 1
            stuck += search(world, "coordinate_greedy", start=(0, 0, 0)).accuracy < counts.max() / 12
    assert unique > 50
    assert stuck > 5


# --- own searchers, and refusals ---


@small
def test_a_user_adds_a_searcher_with_one_function():
    @searcher("first_model")
    def first_model(search, params):
        """Model 0 everywhere."""
        search.evaluate((0,) * search.slots)
        search.move((0,) * search.slots)

    try:
        found = run(random_world("debate", 0), "first_model")
        assert (found.allocation, found.evaluated) == ((0,) * 6, 1)
        assert SEARCHERS["first_model"].doc == "Model 0 everywhere."
    finally:
        del SEARCHERS["first_model"]


REFUSED = {
    "searcher 'llmselecter' is not known; did you mean 'llmselector'?": {"searcher": "llmselecter"},
    "searcher llmselector: it has no parameter 'gama'; did you mean 'gamma'?": {"params": {"gama": 1}},
    "searcher llmselector: diagnoser = 1.2 is not allowed; it must be a number from 0 to 1": {
        "params": {"diagnoser": 1.2}
    },
    "searcher llmselector: scoring = 'papr' is not allowed; did you mean 'paper'?": {
        "params": {"scoring": "papr"}
    },
    "searcher simulated_annealing: cold = 0.1 must not be above hot = 0.05": {
        "searcher": "simulated_annealing",
        "params": {"cold": 0.1},
    },
    "budget is 0.5 evaluated allocations; it must be at least 1": {"budget": 0.5},
    "penalty = -1.0 is not allowed; it must be a number, at least 0": {"penalty": -1.0},
    "penalty is 0.1, but no call has a price": {"penalty": 0.1},
    "allocation (0, 7): there is no model 7, only 0 to 2": {"start": (0, 7)},
}


@small
@pytest.mark.parametrize("sentence", REFUSED)
def test_wrong_input_is_one_clear_sentence(sentence):
    asked = {"searcher": "llmselector", "params": {}, **REFUSED[sentence]}
    with pytest.raises(InputError) as refused:
        search(random_world("locate_solve", 0), asked.pop("searcher"), asked.pop("params"), **asked)
    assert sentence in str(refused.value)


@small
def test_costs_of_another_world_are_refused():
    world, other = random_world("debate", 0), random_world("debate", 1)
    with pytest.raises(InputError, match="costs are those of another world"):
        search(world, "llmselector", costs=Costs.of_calls(other))


@small
def test_votes_count_every_tie():
    assert votes([[1.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]).tolist() == [3, 2, 2]
