"""Warm-up deletion and the path from runs to intervals."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastsim.errors import InputError
from fastsim.stats import mean_interval, quantile
from fastsim.stats.pipeline import reduce_run, run_length, summarise
from fastsim.stats.warmup import Truncation, average_run, common_warmup, mser5
from tests.study.coverage import BAND, coverage, pipeline_case


def mser5_by_definition(values: list[float]) -> list[float]:
    """The statistic for every d, as the formula reads."""
    z = [sum(values[5 * j : 5 * j + 5]) / 5 for j in range(len(values) // 5)]
    k = len(z)
    statistic = []
    for d in range(k // 2 + 1):
        kept = z[d:]
        mean = sum(kept) / len(kept)
        statistic.append(sum((x - mean) ** 2 for x in kept) / (k - d) ** 2)
    return statistic


@given(st.lists(st.integers(-1000, 1000).map(float), min_size=10, max_size=120), st.sampled_from([0.0, 1e6]))
@settings(max_examples=150, deadline=None, derandomize=True)
def test_mser5_minimises_its_statistic(values, shift) -> None:
    found = mser5(np.array(values) + shift)
    statistic = mser5_by_definition(values)
    assert found.requests % 5 == 0
    d = found.requests // 5
    assert statistic[d] == pytest.approx(min(statistic), rel=1e-9, abs=1e-9)
    assert found.long_enough == (d < len(values) // 5 // 2)


def test_mser5_deletes_a_transient_and_nothing_else() -> None:
    rng = np.random.default_rng(1)
    steady = rng.normal(10.0, 1.0, 2_000)
    steady[:300] += 20.0
    assert mser5(steady).requests == 300
    assert mser5(np.full(100, 3.0)).requests == 0


def test_a_run_that_never_settles_is_not_long_enough() -> None:
    assert mser5(np.arange(1_000.0)) == Truncation(500, long_enough=False)


def test_one_truncation_serves_all_policies() -> None:
    rng = np.random.default_rng(2)
    slow, fast = rng.normal(10.0, 1.0, (4, 1_000)), rng.normal(5.0, 1.0, (4, 1_000))
    slow[:, :200] += 30.0
    assert common_warmup([fast, slow]) == Truncation(300, long_enough=True)  # 200 x 1.5, from the slower
    assert common_warmup([fast, slow], safety=1.0) == Truncation(200, long_enough=True)
    assert common_warmup([slow], safety=9.0) == Truncation(500, long_enough=True)  # half of the run at most


def test_average_run_is_cut_to_the_shortest() -> None:
    assert average_run([[1.0, 2.0, 3.0], [3.0, 6.0]]).tolist() == [2.0, 4.0]


def test_summary_is_replication_deletion() -> None:
    runs = np.random.default_rng(3).exponential(1.0, (6, 400))
    summary = summarise(runs, warmup=Truncation(100, True), ps=(0.5, 0.99), level=0.9)
    kept = runs[:, 100:]
    assert summary.mean == mean_interval(kept.mean(axis=1), 0.9)
    assert summary.quantiles[0.99] == mean_interval([quantile(row, 0.99) for row in kept], 0.9)
    assert summary.pooled[0.99] == quantile(kept, 0.99)
    assert [run.n for run in summary.runs] == [300] * 6
    assert list(summary.quantiles) == [0.5, 0.99]


def test_summary_finds_its_own_warmup() -> None:
    runs = np.random.default_rng(4).normal(10.0, 1.0, (5, 1_000))
    runs[:, :100] += 50.0
    summary = summarise(runs)
    assert summary.warmup == Truncation(150, True)
    assert summary.mean.contains(10.0)


def test_short_runs_are_owned_up_to() -> None:
    """P99.9 of 300 samples is their maximum, biased far beyond its interval; the median of 300 is not."""
    summary = summarise(np.random.default_rng(5).exponential(1.0, (50, 300)), warmup=Truncation(0, True))
    assert 0.999 in summary.too_short()
    assert 0.5 not in summary.too_short()


def test_run_length_grows_with_memory_and_rarity() -> None:
    assert run_length(0.99, 0.8) == 150_000
    assert run_length(0.99, 0.9) == 600_000
    assert run_length(0.95, 0.9) == 120_000
    assert run_length(0.95, 0.9, variability=2.5) == 300_000
    assert run_length(0.95, 0.9, variability=0.5) == 120_000
    assert run_length(0.99, 0.0) == 30_000
    assert run_length(0.925, 0.8) == 20_000


def test_a_small_coverage_study() -> None:
    """300 macro-replications of P99 and mean of M/M/1 at 0.5, the whole path.

    The band of the full study, widened for 300: a pipeline with coverage 0.95 fails with 6 of 10,000 seeds,
    one with 0.87 passes with 3 of 100.
    """
    for p, requests in ((0.99, 5_500), (None, 2_200)):
        covered, _, bias = coverage(pipeline_case(p, 0.5, requests=requests), 300)
        assert BAND[0] - 0.03 <= covered <= BAND[1] + 0.025
        assert abs(bias) < 0.005


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: mser5([1.0] * 9), "values has 9 entries; MSER-5 needs at least 10"),
        (lambda: common_warmup([]), "policies is empty"),
        (lambda: common_warmup([[]]), "runs is empty"),
        (lambda: common_warmup([[[1.0] * 20]], safety=0.5), "safety is 0.5; it must be at least 1"),
        (lambda: summarise([]), "runs is empty"),
        (lambda: reduce_run([1.0, 2.0], 2), "warmup is 2; a run of 2 requests allows 0 to 1"),
        (lambda: reduce_run([1.0, 2.0], -1), "warmup is -1"),
        (lambda: reduce_run([1.0, math.inf]), "values holds inf"),
        (lambda: run_length(0.99, 1.0), "utilisation is 1.0"),
        (lambda: run_length(1.0, 0.5), "p is 1.0"),
        (lambda: run_length(0.9, 0.5, math.inf), "variability is inf"),
    ],
)
def test_bad_input_is_one_clear_sentence(call, says) -> None:
    with pytest.raises(InputError, match=says):
        call()
