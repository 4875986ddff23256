"""Intervals against SciPy, order statistics against NumPy's inverted CDF."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as sps

from fastsim.errors import InputError
from fastsim.stats import (
    Interval,
    mean_interval,
    paired_difference,
    paired_ratio,
    quantile,
    quantile_rank,
    quantiles,
    skewness_adjusted,
    skewness_adjusted_p_value,
)
from fastsim.stats.intervals import t_quantile


def test_mean_interval_is_scipys_t_interval() -> None:
    x = np.random.default_rng(1).gamma(2.0, 3.0, 17)
    ours = mean_interval(x, 0.9)
    low, high = sps.t.interval(0.9, 16, loc=x.mean(), scale=sps.sem(x))
    assert (ours.value, ours.n, ours.level) == (x.mean(), 17, 0.9)
    assert ours.low == pytest.approx(low, rel=1e-13)
    assert ours.high == pytest.approx(high, rel=1e-13)
    assert ours.half_width == pytest.approx((high - low) / 2, rel=1e-13)


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.99, 0.999])
def test_t_quantile_is_scipys(level: float) -> None:
    for df in (1, 2, 3, 5, 9, 29, 1000):
        assert t_quantile(level, df) == pytest.approx(sps.t.ppf((1 + level) / 2, df), rel=1e-12)


def test_one_replication_gives_an_infinite_interval() -> None:
    one = mean_interval([3.0])
    assert (one.value, one.low, one.high, one.n) == (3.0, -math.inf, math.inf, 1)
    assert one.half_width == math.inf
    assert math.isnan(paired_difference([3.0], [2.0]).vrf)
    ratio = paired_ratio([3.0], [2.0])
    assert (ratio.value, ratio.low, ratio.high) == (pytest.approx(1.5), 0.0, math.inf)


def test_constant_values_give_a_point() -> None:
    same = mean_interval([2.0, 2.0, 2.0])
    assert (same.low, same.high, same.relative_half_width) == (2.0, 2.0, 0.0)
    assert Interval(0.0, -1.0, 1.0, 5).relative_half_width == math.inf


def test_paired_difference_is_the_paired_t_test() -> None:
    rng = np.random.default_rng(2)
    common = rng.exponential(10.0, 25)
    a, b = common + rng.normal(0, 1, 25), common + rng.normal(0.5, 1, 25)
    ours = paired_difference(a, b)
    theirs = sps.ttest_rel(a, b).confidence_interval(0.95)
    assert (ours.low, ours.high) == (
        pytest.approx(theirs.low, rel=1e-12),
        pytest.approx(theirs.high, rel=1e-12),
    )
    assert ours.vrf == pytest.approx((a.var(ddof=1) + b.var(ddof=1)) / (a - b).var(ddof=1))
    assert ours.vrf > 10  # S_common^2 = 100 against noise of 1 each: about 101


def test_vrf_of_systems_that_differ_by_a_constant_is_infinite() -> None:
    a = np.array([1.0, 4.0, 8.0])
    assert paired_difference(a, a - 0.5).vrf == math.inf
    assert math.isnan(paired_difference([1.0, 1.0], [2.0, 2.0]).vrf)


def test_vrf_below_one_when_pairs_are_out_of_step() -> None:
    a = np.array([1.0, 2.0, 3.0, 4.0])
    assert paired_difference(a, a[::-1]).vrf == pytest.approx(0.5)  # correlation -1: S_d^2 = 4 S^2


def test_paired_ratio_is_the_geometric_mean_and_inverts_when_swapped() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.gamma(5.0, 1.0, 12), rng.gamma(5.0, 2.0, 12)
    ab, ba = paired_ratio(a, b), paired_ratio(b, a)
    assert ab.value == pytest.approx(sps.gmean(a / b), rel=1e-12)
    assert (ab.low * ba.high, ab.high * ba.low) == (
        pytest.approx(1.0, rel=1e-12),
        pytest.approx(1.0, rel=1e-12),
    )


@given(
    st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=200),
    st.lists(st.integers(1, 1000).map(lambda k: k / 1000), min_size=1, max_size=5),
)
@settings(max_examples=200, deadline=None, derandomize=True)
def test_quantiles_are_the_sorted_samples_at_the_rank(values: list[float], ps: list[float]) -> None:
    ordered = sorted(values)
    expected = [ordered[-(-round(p * 1000) * len(values) // 1000) - 1] for p in ps]  # integer ceiling of p n
    assert quantiles(values, ps).tolist() == expected


def test_quantile_agrees_with_numpys_inverted_cdf_off_the_rounding_edges() -> None:
    x = np.random.default_rng(4).normal(size=997)
    for p in (0.1, 0.5, 0.9, 0.95, 0.99, 0.999):
        assert quantile(x, p) == np.quantile(x, p, method="inverted_cdf")


def test_rank_reads_p_as_a_decimal() -> None:
    assert 0.07 * 100 > 7  # what a binary product would make of it
    assert quantile_rank(100, 0.07) == 7
    assert quantile_rank(100, np.float64(0.99)) == 99
    assert (quantile_rank(1, 0.001), quantile_rank(5, 1.0)) == (1, 5)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: mean_interval([]), "values is empty"),
        (lambda: mean_interval([1.0, math.nan]), "values holds nan"),
        (lambda: mean_interval([1.0, 2.0], 95), r"level is 95; it must lie in \(0, 1\)"),
        (lambda: mean_interval([1.0], 1.0), r"level is 1.0"),
        (lambda: paired_difference([1.0, 2.0], [1.0]), "a has 2 values and b has 1"),
        (lambda: paired_ratio([1.0, 2.0], [1.0, 0.0]), "b holds 0; a ratio needs values above 0"),
        (lambda: quantile([], 0.5), "values is empty"),
        (lambda: quantile([1.0, math.nan], 0.5), "values holds NaN"),
        (lambda: quantile([1.0], 0.0), r"p is 0.0; it must lie in \(0, 1\]"),
        (lambda: quantile([1.0], 99), r"p is 99"),
    ],
)
def test_bad_input_is_one_clear_sentence(call, says: str) -> None:
    with pytest.raises(InputError, match=says):
        call()


def test_coverage_of_the_t_interval_on_skewed_replications() -> None:
    """4,000 intervals of 10 means of 200 exponentials: coverage 0.95 +- 4 s.e. (0.0138); error rate 6e-5."""
    rng = np.random.default_rng(5)
    hits = sum(mean_interval(rng.exponential(1.0, (10, 200)).mean(1)).contains(1.0) for _ in range(4000))
    assert abs(hits / 4000 - 0.95) < 4 * math.sqrt(0.95 * 0.05 / 4000)


def test_skewness_adjusted_limits_are_where_halls_statistic_is_the_t_quantile() -> None:
    x = np.random.default_rng(3).lognormal(size=12)
    ours = skewness_adjusted(x, 0.9)
    error, g = sps.sem(x), sps.skew(x)
    a = g / math.sqrt(12)
    for limit, side in ((ours.low, 1.0), (ours.high, -1.0)):
        t = (x.mean() - limit) / error
        assert t + a * t**2 / 3 + a**2 * t**3 / 27 + a / 6 == pytest.approx(
            side * t_quantile(0.9, 11), rel=1e-9
        )
    assert ours.high - ours.value > ours.value - ours.low  # the longer tail is on the right


def test_without_skewness_it_is_the_t_interval() -> None:
    x = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    assert skewness_adjusted(x) == mean_interval(x)
    assert skewness_adjusted([7.0, 7.0, 7.0]) == mean_interval([7.0, 7.0, 7.0])
    assert skewness_adjusted([7.0]).high == math.inf


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(-100, 100), min_size=3, max_size=30))
def test_the_p_value_says_whether_the_interval_leaves_out_zero(x) -> None:
    if np.std(x) < 1e-3:
        return
    p = skewness_adjusted_p_value(x)
    assert 0.0 <= p <= 1.0
    if abs(p - 0.05) > 1e-6:
        assert (p < 0.05) == (not skewness_adjusted(x).contains(0.0))


def test_coverage_where_replications_are_skewed() -> None:
    """4,000 intervals of 20 exponentials, skewness 2: 94 % of ours cover, 92 % of t's; 4 s.e. are 1.4 %."""
    x = np.random.default_rng(6).exponential(1.0, (4000, 20))
    ours = np.mean([skewness_adjusted(row).contains(1.0) for row in x])
    plain = np.mean([mean_interval(row).contains(1.0) for row in x])
    assert 0.930 < ours < 0.955
    assert plain < ours - 0.01


def test_a_pair_can_be_compared_by_it() -> None:
    rng = np.random.default_rng(8)
    a, b = rng.exponential(size=20), rng.exponential(size=20)
    ours = paired_difference(a, b, interval=skewness_adjusted)
    assert (ours.low, ours.high) == (skewness_adjusted(a - b).low, skewness_adjusted(a - b).high)
    assert ours.vrf == paired_difference(a, b).vrf
