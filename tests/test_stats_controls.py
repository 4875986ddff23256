"""Control variates against ordinary least squares, and by their coverage."""

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats as sps

from fastsim.errors import InputError
from fastsim.stats import mean_interval
from fastsim.stats.controls import control_variates


def correlated(
    rng: np.random.Generator, replications: int, rho: float = 0.9
) -> tuple[np.ndarray, np.ndarray]:
    """Values with mean 10 and a control with mean 3 that explains rho^2 of their variance."""
    c = rng.normal(size=replications)
    return 10 + 2 * (rho * c + math.sqrt(1 - rho * rho) * rng.normal(size=replications)), 3 + c


def test_one_control_is_the_intercept_of_a_regression() -> None:
    q, c = correlated(np.random.default_rng(1), 25)
    ours = control_variates(q, c, 3.0, level=0.9)
    line: Any = sps.linregress(c - 3.0, q)
    half = sps.t.ppf(0.95, 23) * line.intercept_stderr
    assert ours.value == pytest.approx(line.intercept, rel=1e-12)
    assert ours.half_width == pytest.approx(half, rel=1e-12)
    assert ours.coefficients == (pytest.approx(line.slope, rel=1e-12),)
    assert ours.n == 25


def test_three_controls_are_the_normal_equations() -> None:
    rng = np.random.default_rng(2)
    c = rng.normal([1.0, 1e-6, 1e6], [1.0, 1e-8, 1e4], (30, 3))  # units far apart
    q = 5 + c @ np.array([1.0, 1e8, 1e-4]) + rng.normal(size=30)
    ours = control_variates(q, c, [1.0, 1e-6, 1e6])
    x = np.column_stack([np.ones(30), (c - [1.0, 1e-6, 1e6]) / [1.0, 1e-8, 1e4]])
    inverse = np.linalg.inv(x.T @ x)
    beta = inverse @ x.T @ q
    s2 = ((q - x @ beta) ** 2).sum() / 26
    assert ours.value == pytest.approx(beta[0], rel=1e-10)
    assert ours.half_width == pytest.approx(sps.t.ppf(0.975, 26) * math.sqrt(s2 * inverse[0, 0]), rel=1e-9)
    assert ours.coefficients == pytest.approx(beta[1:] / [1.0, 1e-8, 1e4], rel=1e-9)


def test_coverage_and_gain() -> None:
    """2,000 intervals: coverage 0.95 -+ 4 s.e. (0.0195).

    The variance falls to 1 - rho^2 = 0.19, times 18 / 17 for the estimated beta; the ratio of two variances
    of 2,000 values spreads by 4.5 % at most, and 3 of that are allowed.
    """
    rng = np.random.default_rng(3)
    hits, plain, adjusted, vrf = 0, [], [], []
    for _ in range(2_000):
        q, c = correlated(rng, 20)
        ours = control_variates(q, c, 3.0)
        hits += ours.contains(10.0)
        plain.append(mean_interval(q).value)
        adjusted.append(ours.value)
        vrf.append(ours.vrf)
    assert abs(hits / 2_000 - 0.95) < 0.0195
    assert np.var(plain) / np.var(adjusted) == pytest.approx((1 / 0.19) * 17 / 18, rel=0.13)
    assert np.median(vrf) == pytest.approx(1 / 0.19, rel=0.1)


def test_a_control_that_explains_all() -> None:
    c = np.array([1.0, 2.0, 4.0, 8.0])
    ours = control_variates(3 * c + 1, c, 2.0)
    assert ours.value == pytest.approx(7.0, rel=1e-12)
    assert ours.half_width < 1e-9


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (
            lambda: control_variates([1.0, 2.0], [1.0, 2.0], 1.0),
            "values has 2 entries; 1 controls need at least 3",
        ),
        (
            lambda: control_variates([1.0, 2.0, 3.0], [1.0, 2.0], 1.0),
            "controls has 2 entries; 1 for each of 3",
        ),
        (lambda: control_variates([1.0, 2.0, 3.0], [2.0, 2.0, 2.0], 2.0), "does not vary"),
        (
            lambda: control_variates([1.0, 2.0, 4.0, 3.0], [[1, 2], [2, 4], [3, 6], [5, 10]], [1, 2]),
            "combinations",
        ),
        (lambda: control_variates([1.0, 2.0, 3.0], [1.0, 2.0, math.nan], 1.0), "controls holds nan"),
    ],
)
def test_bad_input_is_one_clear_sentence(call, says) -> None:
    with pytest.raises(InputError, match=says):
        call()
