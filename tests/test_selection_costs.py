"""Costs: realised calls, the frontier, budgets, swaps, and where a penalty must not go."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from fastsim.errors import InputError
from fastsim.selection.costs import (
    Costs,
    Point,
    cheaper_swaps,
    frontier,
    neighbours,
    per_call,
    price_list,
    within_budget,
)
from fastsim.selection.exhaustive import correct_counts, survey
from fastsim.selection.latent import demo_1
from fastsim.selection.searchers import search
from fastsim.selection.searchers.greedy import with_model
from fastsim.selection.searchers.llmselector import votes
from tests.selection_worlds import SHIPPED, allocations, random_world
from tests.twins import selection as twin

small = pytest.mark.small
pytestmark = small

A, B, C, D, E = range(5)
PRICES = {"A": 5.0, "B": 3.0, "C": 1.0, "D": 0.5, "E": 0.2}


@pytest.fixture(name="demo")
def _demo():
    train, test = demo_1()
    return Costs.of_calls(train, price_list(train, PRICES)), test


@pytest.mark.parametrize("system", SHIPPED)
@pytest.mark.parametrize("coupled", [False, True])
def test_only_calls_that_are_made_cost_anything(system, coupled):
    """Beside the twin, question by question, with prices by call and by token."""
    world = random_world(system, 6, models=2, questions=30, coupled=coupled)
    rng = np.random.default_rng(0)
    price, per_tok = rng.random(2), rng.random(2)
    tokens = rng.integers(0, 50, world.success.shape)
    costs = Costs(world, per_call(world, price, output_price=per_tok, output_tok=tokens))
    table = costs.table()
    for allocation in allocations(world):
        total = 0.0
        for q in range(world.questions):
            called = twin.run(world, allocation, q)[2]
            for slot, k in enumerate(allocation):
                total += called[slot] * (price[k] + per_tok[k] * tokens[slot, k, q])
        assert costs.of(allocation) == pytest.approx(total / world.questions)
        assert table[allocation] == pytest.approx(total / world.questions)


def test_a_refiner_that_never_runs_is_free():
    world = random_world("self_refine", 0)
    success = world.success.copy()
    success[0] = True
    never = type(world)(world.system, world.models, success)
    assert Costs.of_calls(never).of((0, 0, 0)) == 2.0


def test_tokens_of_prompts_and_answers_have_their_prices():
    world = random_world("locate_solve", 0)
    cost = per_call(world, 1.0, input_price=0.1, output_price=[1, 2, 3], input_tok=10, output_tok=5)
    assert cost.shape == world.success.shape
    assert cost[1, :, 0].tolist() == [7.0, 12.0, 17.0]


def test_the_lectures_prices(demo):
    costs, test = demo
    assert costs.of((A, B)) == 8.0
    assert costs.of((C, C)) == 2.0
    points = 100 * (test.accuracy((A, B)) - test.accuracy((C, C)))
    assert (costs.of((A, B)) - costs.of((C, C))) / points == pytest.approx(0.125)


def test_the_frontier_of_the_lectures_example(demo):
    costs, _ = demo
    found = survey(costs.world, costs).frontier
    assert [(p.allocation, p.accuracy) for p in found] == [
        ((E, E), 0.20),
        ((E, C), 0.27),
        ((C, C), 0.45),
        ((A, B), 0.95),
    ]
    assert [p.cost for p in found] == pytest.approx([0.4, 1.2, 2.0, 8.0])


@pytest.mark.parametrize(
    ("budget", "allocation"), [(0.4, (E, E)), (1.99, (E, C)), (7.9, (C, C)), (99, (A, B))]
)
def test_budgeted_maximisation_takes_the_most_accurate_that_fits(demo, budget, allocation):
    costs, _ = demo
    points = survey(costs.world, costs).frontier
    assert within_budget(points, budget).allocation == allocation
    brute = max(
        (a for a in allocations(costs.world) if costs.of(a) <= budget + 1e-9),
        key=lambda a: (costs.world.accuracy(a), -costs.of(a)),
    )
    assert costs.world.accuracy(brute) == costs.world.accuracy(allocation)


def test_costs_that_rounding_tells_apart_are_the_same():
    points = [Point((0,), 2.0, 0.4), Point((1,), 2.0 + 4e-16, 0.5), Point((2,), 3.0, 0.5)]
    assert [point.allocation for point in frontier(points)] == [(1,)]


# --- penalties ---


def ascend(costs: Costs, start, penalty: float, *, inside: bool, rounds: int = 8):
    """LLMSelector's rounds with the penalty inside each question's argmax, or after the mean."""
    world, price = costs.world, penalty * costs.mean / costs.mean.max()
    now = start
    for turn in range(rounds):
        slot = turn % world.slots
        tried = [with_model(now, slot, k) for k in range(len(world.models))]
        scores = np.array([~world.to_blame(each, slot) + 0.1 * world.correct(each) for each in tried])
        if inside:
            worth = votes(scores - price[slot][:, None])
        else:
            worth = votes(scores) / world.questions - price[slot]
        now = tried[int(worth.argmax())]
    return now


def test_a_penalty_inside_the_argmax_breaks_every_tie_for_the_cheapest(demo):
    """However small: A+B collapses to E+B. This is why penalties come after the mean."""
    costs, test = demo
    collapsed = ascend(costs, (C, C), 1e-6, inside=True)
    assert collapsed == (E, B)
    assert test.accuracy(collapsed) == 0.485
    assert ascend(costs, (C, C), 1e-6, inside=False) == (A, B)
    assert search(costs.world, "llmselector", costs=costs, start=(C, C), penalty=1e-6).allocation == (A, B)


@pytest.mark.parametrize("aggregate", ["votes", "mean"])
@pytest.mark.parametrize(("penalty", "end"), [(0.0, (A, B)), (0.1, (A, B)), (0.5, (A, B)), (0.8, (E, B))])
def test_penalties_after_the_mean_keep_the_best_until_they_are_large(demo, aggregate, penalty, end):
    costs, _ = demo
    params = {"aggregate": aggregate}
    found = search(costs.world, "llmselector", params, costs=costs, start=(C, C), penalty=penalty)
    assert found.allocation == end


@pytest.mark.parametrize("penalty", [0.05, 0.3, 1.0])
def test_exhaustive_search_maximises_the_penalised_accuracy(penalty):
    world = random_world("self_refine", 3)
    costs = Costs.of_calls(world, [1.0, 2.0, 4.0])
    worth = {a: world.accuracy(a) - penalty * costs.of(a) / 4.0 for a in allocations(world)}
    best = search(world, "exhaustive", costs=costs, penalty=penalty).allocation
    assert worth[best] == pytest.approx(max(worth.values()))
    single = search(world, "best_single", costs=costs, penalty=penalty).allocation
    assert worth[single] == max(worth[(k, k, k)] for k in range(3))
    greedy = search(world, "steepest_greedy", costs=costs, penalty=penalty).allocation
    assert all(worth[other] <= worth[greedy] + 1e-12 for other in neighbours(greedy, 3))
    halved = search(world, "successive_halving", {"first_questions": 70}, costs=costs, penalty=penalty)
    assert worth[halved.allocation] == pytest.approx(max(worth.values()))


# --- cheapest swaps ---


@pytest.mark.parametrize("loss", [0.0, 0.02, 0.1, 1.0])
def test_swaps_save_most_first_and_stay_above_the_floor_of_the_start(loss):
    for seed in range(5):
        world = random_world("debate", seed)
        costs = Costs.of_calls(world, [3.0, 1.0, 2.0])
        counts = correct_counts(world)
        start = tuple(int(k) for k in np.unravel_index(int(counts.argmax()), counts.shape))
        path = cheaper_swaps(costs, start, loss)
        assert path[0].allocation == start
        floor = world.accuracy(start) - loss - 1e-9
        for before, after in itertools.pairwise(path):
            fine = [
                costs.of(other)
                for other in neighbours(before.allocation, 3)
                if world.accuracy(other) >= floor and costs.of(other) < before.cost - 1e-9
            ]
            assert after.cost == pytest.approx(min(fine))
        last = path[-1].allocation
        assert world.accuracy(last) >= floor
        assert not any(
            world.accuracy(other) >= floor and costs.of(other) < costs.of(last) - 1e-9
            for other in neighbours(last, 3)
        )
        if loss == 1.0:
            assert last == (1,) * 6


REFUSED = {
    "model 'E' has no price; choose one of: A, B, C, D": lambda w: price_list(
        w, {name: 1.0 for name in "ABCD"}
    ),
    "call holds -1; it must be 0 or more, and finite": lambda w: per_call(w, -1.0),
    "output_tok holds nan; it must be 0 or more, and finite": lambda w: per_call(w, output_tok=np.nan),
    "call has shape (2,); it must fit (5,)": lambda w: per_call(w, [1.0, 2.0]),
    "0.1 a question is too little; the cheapest allocation costs 0.4": lambda w: within_budget(
        [Point((0, 0), 0.4, 0.5)], 0.1
    ),
    "loss is -0.1; it must be 0 or more": lambda w: cheaper_swaps(Costs.of_calls(w), (0, 0), -0.1),
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_wrong_input_is_one_clear_sentence(sentence):
    with pytest.raises(InputError) as refused:
        REFUSED[sentence](demo_1()[0])
    assert sentence in str(refused.value)
