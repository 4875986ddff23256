"""Balls into bins against the exact law, the fluid limits and the effect of every rule."""

from __future__ import annotations

import itertools
import json
import math
from typing import Any

import numpy as np
import pytest

from fastsim.errors import InputError
from fastsim.queueing import balls
from fastsim.queueing.balls_theory import one_choice_max

LEVEL = 0.9999  # of every interval below: the twenty comparisons hold together for 998 seeds in 1000


@pytest.mark.parametrize(("n", "m"), [(1000, 1000), (20, 7), (5000, 100), (100, 10_000), (1, 1), (7, 1)])
def test_one_choice_against_its_exact_law(n, m) -> None:
    """Mean by interval, and the whole distribution by chi-square at one in ten thousand."""
    from scipy.stats import chi2

    trials = 5000
    result = balls(m, n, 1, trials=trials, level=LEVEL, seed=1)
    law = one_choice_max(n, m)
    assert result.theory is not None
    assert result.theory.kind == "exact"
    if result.maxima.min() == result.maxima.max():
        assert law.pmf(int(result.maxima[0])) > 1.0 - 3.0 / trials
        return
    assert result.mean.contains(law.mean)
    expected, seen = [0.0], [0.0]  # neighbours pooled until each cell expects at least ten
    for k in range(law.first, law.first + law.probability.size):
        expected[-1] += trials * law.pmf(k)
        seen[-1] += trials * result.distribution.get(float(k), 0.0)
        if expected[-1] >= 10.0:
            expected.append(0.0)
            seen.append(0.0)
    expected[-2] += expected.pop()
    seen[-2] += seen.pop()
    statistic = sum((s - e) ** 2 / e for s, e in zip(seen, expected, strict=True))
    assert statistic <= chi2.isf(1e-4, len(expected) - 1)


RULES: list[tuple[dict[str, Any], float]] = [
    ({"choices": 2}, 0.02),
    ({"choices": 3}, 0.01),
    ({"choices": 2, "beta": 0.5}, 0.03),
    ({"choices": 2, "rule": "left"}, 0.01),
    ({"choices": 2, "replacement": False}, 0.02),
    ({"choices": 2, "balls": 160_000}, 0.01),
]


@pytest.mark.parametrize(("rule", "tolerance"), RULES)
def test_fluid_limits(rule, tolerance) -> None:
    """20,000 bins: the estimate of the fullest one's mean is off by a few per cent at worst."""
    result = balls(20_000, trials=300, seed=2, level=LEVEL, **rule)
    assert result.theory is not None
    assert result.theory.kind == "fluid limit"
    assert result.theory.law.mean == pytest.approx(result.mean.value, rel=tolerance)


def test_order_of_rules() -> None:
    """Every ball more informed, a fuller fullest bin less likely; ties to the left help."""
    rules: list[dict[str, Any]] = [
        {"choices": 1},
        {"choices": 2, "beta": 0.3},
        {"choices": 2, "beta": 0.8},
        {"choices": 2},
        {"choices": 2, "rule": "left"},
    ]
    means = [balls(5000, trials=300, **rule).mean for rule in rules]
    for worse, better in itertools.pairwise(means):
        assert better.high < worse.low
    assert balls(5000, trials=300, choices=5).mean.value <= means[-1].value


def test_two_kernels_for_one_rule() -> None:
    """beta = 0 is one choice and d = 1 too: the same draws give the same bins."""
    one = balls(300, trials=200, choices=1, seed=3).maxima
    np.testing.assert_array_equal(one, balls(300, trials=200, choices=2, beta=0.0, seed=3).maxima)
    np.testing.assert_array_equal(one, balls(300, trials=200, choices=1, rule="left", seed=3).maxima)


def test_all_bins_seen_levels_them() -> None:
    """d = m without replacement always takes an emptiest bin: no two bins ever differ by more than one."""
    result = balls(10, 97, 10, replacement=False, trials=50)
    assert set(result.maxima.tolist()) == {10.0}


def test_weighted_balls() -> None:
    """Constant weights are balls; random ones add up, and two choices still help."""
    plain = balls(200, 1000, 2, trials=100, seed=4).maxima
    heavy = balls(200, 1000, 2, trials=100, seed=4, weights="deterministic(mean=2.5)").maxima
    np.testing.assert_allclose(heavy, 2.5 * plain, rtol=1e-12)
    one, two = (balls(500, choices=d, weights="pareto(alpha=1.8)", trials=400).mean for d in (1, 2))
    assert two.value < one.value
    alone = balls(1, 400, 1, weights="exponential", trials=2000, level=LEVEL)
    assert alone.mean.contains(400.0)
    assert alone.theory is None
    assert "distribution" not in alone.to_dict()


def test_same_trials_whatever_the_workers() -> None:
    """Trials come in blocks with streams of their own."""
    one = balls(100_000, trials=40, workers=1, seed=5)
    two = balls(100_000, trials=40, workers=2, seed=5)
    np.testing.assert_array_equal(one.maxima, two.maxima)
    assert balls(100_000, trials=11, seed=5).maxima.tolist() == one.maxima[:11].tolist()
    assert not np.array_equal(one.maxima, balls(100_000, trials=40, seed=6).maxima)


def test_defaults_and_numbers() -> None:
    result = balls(1000)
    assert (result.balls, result.choices, result.trials) == (1000, 2, 10_000)
    assert balls(10_000_000, choices=1, trials=1).trials == 1
    row = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert math.isclose(sum(row["distribution"].values()), 1.0)
    assert row["asymptotic"] == pytest.approx(math.log(math.log(1000)) / math.log(2))
    assert result.quantile(0.5) == 3.0


BAD: list[tuple[dict[str, Any], str]] = [
    ({"bins": 0}, "bins = 0 is not allowed; it must be a whole number from 1 to 2,147,483,647"),
    ({"bins": 10, "balls": 0}, "balls = 0 is not allowed; it must be a whole number from 1 to 2,147,483,647"),
    ({"bins": 10, "balls": 2**31}, "balls = 2147483648 is not allowed; it must be a whole number from 1 to"),
    ({"bins": 10, "choices": 0}, "choices = 0 is not allowed; it must be a whole number from 1 to 10,000"),
    ({"bins": 3, "choices": 4, "replacement": False}, "choices is 4; 3 bins"),
    ({"bins": 3, "choices": 4, "rule": "left"}, "choices is 4; 3 bins"),
    ({"bins": 3, "rule": "lefty"}, "did you mean 'left'"),
    ({"bins": 3, "beta": 1.5}, r"beta = 1\.5 is not allowed; it must be a number from 0 to 1"),
    ({"bins": 3, "beta": 0.5, "rule": "left"}, "leave it at 1"),
    ({"bins": 3, "trials": 0}, "trials = 0 is not allowed; it must be a whole number from 1 to"),
    ({"bins": 3, "workers": 0}, "workers = 0 is not allowed; it must be a whole number from 1 to 1,024"),
    ({"bins": 3, "weights": "exponentia"}, "did you mean 'exponential'"),
    ({"bins": 3, "seed": -1}, "seed = -1 is not allowed; it must be a whole number, at least 0"),
    ({"bins": 3, "level": 0.0}, r"level = 0\.0 is not allowed; it must be a number, above 0 and below 1"),
    ({"bins": 3, "level": "a"}, "level = 'a' is not allowed; it must be a number, above 0 and below 1"),
    ({"bins": 3, "beta": "x"}, "beta = 'x' is not allowed; it must be a number from 0 to 1"),
    ({"bins": 3, "beta": math.nan}, "beta = nan is not allowed; it must be a finite number"),
    ({"bins": 3, "weights": 3}, "3 is not a law"),
    ({"bins": 3, "weights": [1.0]}, "is not a law"),
    ({"bins": 3, "replacement": None}, "replacement = None is not allowed; it must be true or false"),
    (
        {"bins": 3, "choices": 10**9},
        "choices = 1000000000 is not allowed; it must be a whole number from 1 to",
    ),
    *(
        ({"bins": 3, name: value}, f"{name} = .* is not allowed; it must be a whole number")
        for name in ("bins", "balls", "choices", "trials", "seed", "workers")
        for value in (1.5, "2", True)
    ),
]


@pytest.mark.small
def test_one_trial_has_no_interval_in_json() -> None:
    row = json.loads(json.dumps(balls(10, trials=1).to_dict(), allow_nan=False))
    assert (row["low"], row["high"]) == (None, None)


@pytest.mark.small
@pytest.mark.parametrize(("question", "words"), BAD)
def test_bad_input_is_named_before_anything_runs(question, words, monkeypatch) -> None:
    monkeypatch.setattr("fastsim.queueing.balls_in_bins.stream", None)
    with pytest.raises(InputError, match=words):
        balls(**question)
