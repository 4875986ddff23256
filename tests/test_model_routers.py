"""The contract of model routers, over all that are registered and one that a user adds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastsim.errors import InputError
from fastsim.selection import model_routers
from fastsim.selection.model_routers import MODEL_ROUTERS, choose, fit, get, nested_params, weights
from fastsim.selection.model_routers.registry import UNUSED
from fastsim.selection.route_metrics import hull_members
from fastsim.selection.routed import NO_CALL, evaluate
from fastsim.selection.tables import Outcomes, split
from tests.selection_tables import make_table

every_router = pytest.mark.parametrize("name", list(MODEL_ROUTERS))
LEARNED = ("length", "win_probability", "knn", "logistic", "matrix_factorisation")
DIAL = (0.0, 0.01, 0.05, 0.2, 10.0)


def parts(**given):
    found = split(make_table(160, **given), seed=1)
    return found.train, found.test


def routes(name: str, train: Outcomes, test: Outcomes, seed: int = 0) -> list[list[int]]:
    router = fit(name, train, seed=seed)
    return [router.route(test, weight).answer.tolist() for weight in DIAL]


@every_router
@pytest.mark.parametrize("models", [2, 4])
def test_every_question_goes_to_one_model_that_exists(name, models):
    train, test = parts(models=models)
    for weight in DIAL:
        routed = fit(name, train).route(test, weight)
        assert routed.calls.shape == (test.size, 1)
        assert ((routed.answer >= 0) & (routed.answer < models)).all()
        np.testing.assert_array_equal(routed.score, test.scores[np.arange(test.size), routed.answer])
        np.testing.assert_array_equal(routed.cost, test.costs[np.arange(test.size), routed.answer])
        assert routed.loads.sum() == pytest.approx(1.0, abs=1e-12)


@every_router
def test_the_same_seed_gives_the_same_routes_and_only_random_asks_for_it(name):
    train, test = parts()
    first = routes(name, train, test, seed=3)
    assert routes(name, train, test, seed=3) == first
    assert (routes(name, train, test, seed=4) != first) == (name == "random")


@every_router
def test_routes_do_not_depend_on_the_outcomes_they_are_tested_on(name):
    train, test = parts()
    other = replace(test, scores=1.0 - test.scores, costs=test.costs[:, ::-1] + 7.0, output_tok=test.costs)
    same = routes(name, train, test) == routes(name, train, other)
    assert same == (not MODEL_ROUTERS[name].peeks)


@every_router
def test_a_question_is_routed_alone_as_among_others(name):
    train, test = parts()
    if name == "random":
        return  # draws one number a question, in order
    router = fit(name, train)
    for weight in DIAL:
        together = router.route(test, weight).answer
        alone = [int(router.route(test.take([row]), weight).answer[0]) for row in range(0, test.size, 9)]
        assert together[::9].tolist() == alone


@every_router
def test_a_dearer_dial_never_costs_less_on_expectation(name):
    train, test = parts(models=4)
    router = fit(name, train)
    expected = [router.mean_cost[router.route(test, weight).answer].mean() for weight in DIAL]
    if not MODEL_ROUTERS[name].fixed:
        assert expected == sorted(expected, reverse=True)
        assert expected[-1] == router.mean_cost.min()
    else:
        assert len(set(expected)) == 1


@every_router
def test_every_router_says_what_it_does(name):
    assert MODEL_ROUTERS[name].doc.endswith(".")
    assert "\n" not in MODEL_ROUTERS[name].doc


@pytest.mark.parametrize("name", ["knn", "logistic", "matrix_factorisation"])
def test_learned_routers_find_out_who_knows_which_topic(name):
    # Two models of equal price, one for each half of the topics, so that words alone tell whom to ask.
    table = make_table(400, models=2, repeats=0)
    expert = np.array([int(topic[-1]) % 2 for topic in table.domain or ()])
    scores = (expert[:, None] == np.arange(2)).astype(np.float64)
    known = split(replace(table, scores=scores, costs=np.tile([1.0, 1.000001], (400, 1))), seed=1)
    share = fit(name, known.train).route(known.test).score.mean()
    floor = (
        0.9 if name != "win_probability" else expert.mean() - 0.2
    )  # it asks one unless the other surely wins
    assert share >= floor


def test_length_router_follows_the_direction_it_learnt():
    table = make_table(300, models=2, repeats=0)
    long = np.asarray(table.length) > np.median(np.asarray(table.length))
    for strong_is in (0, 1):
        scores = np.column_stack([~long, long]).astype(float)[:, :: 1 if strong_is else -1]
        router = fit("length", replace(table, scores=np.ascontiguousarray(scores)))
        gain = router.quality(table) @ [-1.0, 1.0]
        agree = np.corrcoef(gain, np.asarray(table.length))[0, 1]
        assert (agree > 0) == bool(strong_is)


def test_oracle_takes_the_cheapest_of_the_best():
    train, test = parts(models=4)
    routed = fit("oracle", train).route(test)
    np.testing.assert_array_equal(routed.score, test.scores.max(axis=1))
    order = np.argsort(train.costs.mean(axis=0))
    for row, answer in enumerate(routed.answer):
        best = [k for k in order if test.scores[row, k] == test.scores[row].max()]
        assert answer == best[0]


def test_baselines_are_what_they_are_called():
    train, test = parts(models=4)
    assert set(fit("cheapest", train).route(test).answer) == {int(train.costs.mean(axis=0).argmin())}
    assert set(fit("best_single", train).route(test).answer) == {int(train.scores.mean(axis=0).argmax())}


def test_random_mixes_two_neighbours_of_the_hull_at_a_time():
    table = make_table(20_000, models=4, repeats=0)
    right = np.random.default_rng(1).random(table.scores.shape) < (0.2, 0.5, 0.6, 0.65)
    table = replace(table, scores=right.astype(float))
    router = fit("random", table)
    members = hull_members(table.costs.mean(axis=0), table.scores.mean(axis=0))
    assert len(members) == 4
    top = len(members) - 1
    for step in range(top):
        weight = top - 1 - step + 0.25  # a quarter of the way: three quarters go on to the dearer neighbour
        share = router.route(table, weight).loads
        assert share[members[step + 1]] == pytest.approx(0.75, abs=4 * np.sqrt(0.75 * 0.25 / table.size))
        assert share[members[step]] == pytest.approx(1 - share[members[step + 1]], abs=1e-12)


@given(st.integers(0, 10**6), st.floats(0, 5))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_choose_is_the_argmax_with_ties_to_the_cheapest(seed, weight):
    rng = np.random.default_rng(seed)
    quality = rng.integers(0, 4, (8, 3)) / 4.0
    cost = rng.integers(0, 3, 3).astype(float)
    for row, model in enumerate(choose(quality, cost, weight)):
        value = [quality[row, k] - weight * cost[k] for k in range(3)]
        assert model == min(range(3), key=lambda k: (-value[k], cost[k], k))
    by_question = choose(quality, np.tile(cost, (8, 1)), weight)
    np.testing.assert_array_equal(by_question, choose(quality, cost, weight))


@given(st.integers(0, 10**6), st.integers(2, 30))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_weights_reach_from_the_dearest_to_the_cheapest(seed, points):
    rng = np.random.default_rng(seed)
    quality, cost = rng.random((50, 3)), np.sort(rng.random(3)) + 0.1
    quality[:, 2] = UNUSED
    dial = weights(quality, cost, points)
    assert dial[0] == 0.0
    assert (np.diff(dial) > 0).all()
    assert len(dial) <= points + 2
    assert (choose(quality, cost, dial[-1]) == 0).all()
    assert set(choose(quality, cost, 0.0)) <= {0, 1}


def test_a_user_adds_a_router_in_a_few_lines():
    @model_routers.model_router("last")
    def last(train, params, seed):
        """Always the last model."""
        return lambda questions: np.tile(np.arange(len(train.models), dtype=float), (questions.size, 1))

    try:
        train, test = parts()
        assert set(fit("last", train).route(test).answer) == {2}
    finally:
        del MODEL_ROUTERS["last"]


def test_what_a_router_is_refused():
    train, test = parts()
    bare = replace(train, texts=None, length=None)
    cases = [
        (lambda: get("kn"), "model router 'kn' is not known; did you mean 'knn'?"),
        (
            lambda: fit("knn", train, {"kk": 3}),
            "model router knn: it has no parameter 'kk'; did you mean 'k'?",
        ),
        (
            lambda: fit("knn", train, {"k": 0}),
            "model router knn: k = 0 is not allowed; it must be a whole number, at least 1",
        ),
        (
            lambda: fit("knn", bare),
            "made holds no texts or lengths of questions, which model router knn needs",
        ),
        (lambda: fit("oracle", train).route(test.only(["m1", "m0"])), "made: its models are not those the"),
        (lambda: fit("oracle", train).route(test, -1.0), "weight is -1; it must be 0 or more"),
        (
            lambda: nested_params({"k": 3}),
            "setting 'k' names no router; write it as router.key, as in knn.k=10",
        ),
        (lambda: model_routers.model_router("x", needs=["texts"]), "needs = 'texts' is not known"),
    ]
    for refused, said in cases:
        with pytest.raises(InputError) as error:
            refused()
        assert said in str(error.value)


def test_routers_without_texts_use_lengths():
    train, test = parts()
    bare = [replace(table, texts=None) for table in (train, test)]
    for name in LEARNED:
        assert len(routes(name, bare[0], bare[1])[0]) == test.size


def test_evaluate_adds_up_all_calls_and_takes_the_last_answer():
    table = make_table(3, repeats=0)
    calls = np.array([[0, 2, NO_CALL], [1, NO_CALL, NO_CALL], [0, 1, 2]])
    routed = evaluate(table, calls)
    assert routed.answer.tolist() == [2, 1, 2]
    assert routed.stages.tolist() == [2, 1, 3]
    assert routed.score.tolist() == [table.scores[0, 2], table.scores[1, 1], table.scores[2, 2]]
    assert routed.cost[2] == pytest.approx(table.costs[2].sum(), rel=1e-15)
    assert routed.loads.tolist() == pytest.approx([2 / 3, 2 / 3, 2 / 3])
    bad = [
        ([[0]], "it must have 3 rows"),
        ([[3]] * 3, "must be 0 to 2"),
        ([[-1, 0]] * 3, "at the first stage"),
    ]
    for wrong, said in bad:
        with pytest.raises(InputError, match=said):
            evaluate(table, np.array(wrong))
