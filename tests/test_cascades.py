"""Cascades: what they call, the search against a slow twin, and scorers of the quality asked for."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastsim.errors import InputError
from fastsim.selection.cascades import Cascade, frontier, under_budget
from fastsim.selection.model_routers import fit
from fastsim.selection.routed import NO_CALL
from fastsim.selection.scorers import judge, learnt, scorer_of_auc
from fastsim.selection.tables import Outcomes
from tests.selection_tables import make_table

seeds = st.integers(0, 10**6)


def random_case(seed: int, rows: int = 12, models: int = 3) -> tuple[Outcomes, np.ndarray]:
    rng = np.random.default_rng(seed)
    table = make_table(rows, models=models, seed=seed, repeats=0)
    trust = rng.integers(0, 5, table.scores.shape) / 4.0  # with ties
    return table, trust


def slow_calls(cascade: Cascade, models: tuple[str, ...], trust: np.ndarray) -> list[list[int]]:
    found = []
    for row in trust:
        calls = []
        for stage, name in enumerate(cascade.models):
            model = models.index(name)
            calls.append(model)
            if stage < len(cascade.thresholds) and row[model] > cascade.thresholds[stage]:
                break
        found.append(calls + [NO_CALL] * (len(cascade.models) - len(calls)))
    return found


@given(seeds, st.lists(st.sampled_from([0.0, 0.25, 0.5, 0.6, 1.0]), min_size=2, max_size=2))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_a_cascade_stops_at_the_first_answer_it_trusts(seed, thresholds):
    table, trust = random_case(seed)
    cascade = Cascade(("m2", "m0", "m1"), tuple(thresholds))
    routed = cascade.route(table, trust)
    expected = slow_calls(cascade, table.models, trust)
    assert routed.calls.tolist() == expected
    for row, calls in enumerate(expected):
        made = [k for k in calls if k != NO_CALL]
        assert routed.score[row] == table.scores[row, made[-1]]
        assert routed.cost[row] == pytest.approx(sum(table.costs[row, k] for k in made), rel=1e-12)


def slow_frontier(table: Outcomes, trust: np.ndarray, stages: int) -> list[tuple[float, float]]:
    """Every list in ascending order of cost with every threshold that occurs, pruned by pairs."""
    by_cost = sorted(range(len(table.models)), key=lambda k: table.costs[:, k].mean())
    points = []
    for length in range(1, stages + 1):
        for order in combinations(by_cost, length):
            for thresholds in product(*(sorted(set(trust[:, k])) for k in order[:-1])):
                cascade = Cascade(tuple(table.models[k] for k in order), thresholds)
                routed = cascade.route(table, trust)
                points.append((routed.cost.mean(), routed.score.mean()))
    best, kept = -1.0, []
    for cost, quality in sorted(points, key=lambda point: (round(point[0], 9), -point[1])):
        if quality > best + 1e-12:
            best, kept = quality, [*kept, (cost, quality)]
    return kept


@given(seeds)
@settings(max_examples=40, deadline=None, derandomize=True)
def test_the_frontier_is_that_of_all_thresholds(seed):
    # 200 quantiles of 12 answers are all the thresholds there are.
    table, trust = random_case(seed)
    found = frontier(table, trust, stages=3, grid=200, min_improvement=-1.0)
    got = [(item.cost, item.quality) for item in found]
    want = slow_frontier(table, trust, 3)
    np.testing.assert_allclose(thin(got), want, rtol=1e-9)


def thin(points):
    """Without points that are better by rounding alone."""
    kept = []
    for cost, quality in points:
        if not kept or quality > kept[-1][1] + 1e-12:
            kept.append((cost, quality))
    return kept


@given(seeds, st.integers(1, 4), st.sampled_from([2, 5, 40]))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_what_the_search_promises_is_what_the_cascade_does(seed, stages, grid):
    table, trust = random_case(seed, rows=40, models=4)
    found = frontier(table, trust, stages=stages, grid=grid)
    assert [item.cost for item in found] == sorted(item.cost for item in found)
    assert (np.diff([item.quality for item in found]) > 0).all()
    for item in found:
        routed = item.cascade.route(table, trust)
        assert len(item.cascade.models) <= stages
        assert routed.cost.mean() == pytest.approx(item.cost, rel=1e-9)
        assert routed.score.mean() == pytest.approx(item.quality, rel=1e-9)


def test_under_a_budget_the_best_affordable_one_is_taken():
    table, trust = random_case(5, rows=60)
    found = frontier(table, trust)
    for item in found:
        assert under_budget(found, item.cost) == item
        assert under_budget(found, item.cost * 1.0000001).quality == item.quality
    with pytest.raises(InputError, match="budget is 0; the cheapest cascade costs"):
        under_budget(found, 0.0)
    within = frontier(table, trust, max_cost=found[1].cost)
    assert [item.quality for item in within] == [item.quality for item in found[:2]]


def test_lists_whose_next_model_hardly_helps_are_pruned():
    table, trust = random_case(1, rows=60)
    same = replace(table, scores=np.repeat(table.scores[:, :1], 3, axis=1))
    assert {item.cascade.models for item in frontier(same, trust)} == {("m0",)}
    everyone = frontier(table, trust, min_improvement=1.1)
    assert all(len(item.cascade.models) == 1 for item in everyone)


def test_a_pool_keeps_the_undominated_models_first():
    table = make_table(400, models=4, repeats=0)
    right = np.random.default_rng(3).random(table.scores.shape) < (0.5, 0.3, 0.7, 0.6)
    table = replace(table, scores=right.astype(float))  # m1 is worse than m0, m3 than m2, and both are dearer
    for pool, kept in (
        (1, {"m2"}),
        (2, {"m0", "m2"}),
        (3, {"m0", "m2", "m3"}),
        (9, {"m0", "m1", "m2", "m3"}),
    ):
        found = frontier(table, scorer_of_auc(table, 0.95), pool=pool, stages=4, min_improvement=0.0)
        assert {model for item in found for model in item.cascade.models} <= kept
    assert len(frontier(table, scorer_of_auc(table, 0.95), pool=1)) == 1


def test_a_perfect_scorer_reaches_the_oracle_of_its_list():
    table = make_table(200, models=3, repeats=0)
    best = frontier(table, scorer_of_auc(table, 1.0))[-1]
    assert best.quality == pytest.approx(table.scores.max(axis=1).mean(), rel=1e-12)


@pytest.mark.parametrize("auc", [0.5, 0.7, 0.9, 0.99])
def test_scorers_have_the_auc_they_are_asked_for(auc):
    table = make_table(4000, models=3, repeats=0)
    trust, right = scorer_of_auc(table, auc, seed=1), table.scores == 1.0
    assert trust.min() >= 0.0
    assert trust.max() <= 1.0
    above, below = trust[right], trust[~right]
    order = np.argsort(np.concatenate([above, below]), kind="stable")
    rank = np.empty(len(order))
    rank[order] = np.arange(1, len(order) + 1)
    # Mann-Whitney; at auc = 0.5 all trust is equal, and ties count a half.
    if auc == 0.5:
        assert set(trust.ravel()) == {0.5}
        return
    measured = (rank[: len(above)].sum() - len(above) * (len(above) + 1) / 2) / (len(above) * len(below))
    # Standard error at most that of Bamber (1975) under the worst law; 4 of them, so 1 test in 16,000 fails.
    error = np.sqrt(auc * (1 - auc) / min(len(above), len(below)))
    assert measured == pytest.approx(auc, abs=4 * error)


def test_a_judge_errs_as_often_as_asked():
    table = make_table(5000, models=2, repeats=0)
    for error in (0.0, 0.2, 1.0):
        wrong = (judge(table, error, seed=2) != table.scores).mean()
        assert wrong == pytest.approx(error, abs=4 * np.sqrt(error * (1 - error) / 10_000))


def test_scorers_are_fixed_by_their_seed():
    table = make_table(50)
    assert (scorer_of_auc(table, 0.8, seed=3) == scorer_of_auc(table, 0.8, seed=3)).all()
    assert (scorer_of_auc(table, 0.8, seed=3) != scorer_of_auc(table, 0.8, seed=3, replicate=1)).any()


def test_a_router_can_be_the_scorer():
    table = make_table(100)
    trust = learnt(fit("knn", table), table)
    assert trust.shape == table.scores.shape
    assert frontier(table, trust)[-1].quality >= table.scores.mean(axis=0).max()


def test_what_cascades_are_refused():
    table, trust = random_case(0)
    cases = [
        (lambda: Cascade(("m0", "m1"), ()), "a cascade of 2 models has 0 thresholds"),
        (lambda: Cascade((), ()), "a cascade of 0 models"),
        (lambda: Cascade(("n0",), ()).route(table, trust), "there is no model 'n0'; choose one of: m0"),
        (lambda: frontier(table, trust[:5]), "trust has the shape (5, 3)"),
        (
            lambda: frontier(table, trust, stages=0),
            "stages = 0 is not allowed; it must be a whole number from 1",
        ),
        (lambda: frontier(table, trust, pool=0), "pool is 0; it must be at least 1"),
        (lambda: frontier(table, trust, max_cost=0.1), "max_cost is 0.1; the cheapest model alone costs"),
        (lambda: scorer_of_auc(table, 0.4), "auc is 0.4; it must lie from 0.5 to 1"),
        (lambda: judge(table, 1.2), "error is 1.2; it must lie from 0 to 1"),
    ]
    for refused, said in cases:
        with pytest.raises(InputError) as error:
            refused()
        assert said in str(error.value)
