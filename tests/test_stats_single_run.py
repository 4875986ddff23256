"""Sections of one run and ranks of independent samples, against SciPy and by their coverage."""

import math

import numpy as np
import pytest
from scipy import stats as sps
from scipy.signal import lfilter

from fastsim.errors import InputError
from fastsim.stats import mean_interval, quantile
from fastsim.stats.single_run import batch_means, order_statistic_interval, sectioning


def autoregressions(rng: np.random.Generator, runs: int, n: int, phi: float = 0.8) -> np.ndarray:
    """Stationary Gaussian AR(1) with mean 0 and variance 1, one run a row."""
    noise = rng.normal(0.0, math.sqrt(1 - phi * phi), (runs, n))
    noise[:, 0] = rng.normal(size=runs)
    return np.asarray(lfilter([1.0], [1.0, -phi], noise, axis=1))


def test_batch_means_are_the_t_interval_of_the_batches() -> None:
    x = np.random.default_rng(1).normal(size=163)
    assert batch_means(x, 16) == mean_interval(x[3:].reshape(16, 10).mean(axis=1))


def test_sectioning_follows_its_formula() -> None:
    x = np.random.default_rng(2).exponential(size=1_000)
    ours = sectioning(x, 0.9, batches=10, level=0.9)
    whole = np.quantile(x, 0.9, method="inverted_cdf")
    parts = np.quantile(x.reshape(10, 100), 0.9, axis=1, method="inverted_cdf")
    half = sps.t.ppf(0.95, 9) * math.sqrt(((parts - whole) ** 2).sum() / 9 / 10)
    assert ours.value == whole
    assert ours.half_width == pytest.approx(half, rel=1e-12)
    assert ours.n == 10


def test_one_correlated_run_is_covered_by_sections() -> None:
    """1,000 AR(1) runs of 4,000: coverage 0.95 -+ 4 s.e. (0.0276), error rate 6e-5 at nominal coverage."""
    rng = np.random.default_rng(3)
    truth, hits_mean, hits_quantile, naive = float(sps.norm.ppf(0.9)), 0, 0, 0
    for row in autoregressions(rng, 1_000, 4_000):
        hits_mean += batch_means(row).contains(0.0)
        hits_quantile += sectioning(row, 0.9).contains(truth)
        naive += order_statistic_interval(row, 0.9).contains(truth)
    assert abs(hits_mean / 1_000 - 0.95) < 0.0276
    assert abs(hits_quantile / 1_000 - 0.95) < 0.0276
    assert naive / 1_000 < 0.75  # why ranks are not for the requests of one run


@pytest.mark.parametrize(
    ("n", "p", "level"), [(100, 0.5, 0.95), (1_000, 0.99, 0.95), (30, 0.9, 0.9), (500, 0.01, 0.99)]
)
def test_ranks_cover_and_are_the_tightest(n, p, level) -> None:
    """With samples 1..n the interval shows the ranks themselves."""
    ours = order_statistic_interval(np.arange(1.0, n + 1), p, level)
    tail = (1 - level) / 2
    binomial = sps.binom(n, p)
    low = int(ours.low) if math.isfinite(ours.low) else 0
    high = int(ours.high) if math.isfinite(ours.high) else n + 1
    assert binomial.cdf(low - 1) <= tail < binomial.cdf(low)
    assert binomial.sf(high - 1) <= tail < binomial.sf(high - 2)
    assert ours.value == quantile(np.arange(1.0, n + 1), p)


def test_ranks_run_out() -> None:
    ours = order_statistic_interval(np.arange(50.0), 0.99)
    assert ours.high == math.inf
    assert order_statistic_interval(np.arange(50.0), 0.01).low == -math.inf


def test_ranks_cover_exponential_samples() -> None:
    """4,000 intervals for the median of 75: exact coverage by the binomial law, +- 4 s.e."""
    rng = np.random.default_rng(4)
    exact = sps.binom(75, 0.5).cdf(int(order_statistic_interval(np.arange(1.0, 76), 0.5).high) - 1)
    exact -= sps.binom(75, 0.5).cdf(int(order_statistic_interval(np.arange(1.0, 76), 0.5).low) - 1)
    hits = sum(
        order_statistic_interval(row, 0.5).contains(math.log(2)) for row in rng.exponential(size=(4_000, 75))
    )
    assert exact >= 0.95
    assert abs(hits / 4_000 - exact) < 4 * math.sqrt(0.05 * 0.95 / 4_000)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: batch_means([1.0, 2.0], 1), "batches is 1; at least 2 are needed"),
        (lambda: sectioning([1.0, 2.0], 0.5, 3), "values has 2 entries; 3 batches need at least as many"),
        (lambda: sectioning([1.0, 2.0], 1.5, 2), "p is 1.5"),
        (lambda: order_statistic_interval([1.0], 1.0), r"p is 1.0; it must lie in \(0, 1\)"),
        (lambda: order_statistic_interval([1.0], 0.5, 2.0), "level is 2.0"),
    ],
)
def test_bad_input_is_one_clear_sentence(call, says) -> None:
    with pytest.raises(InputError, match=says):
        call()
