"""The histogram against exact order statistics, its twin, and its own merges."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastsim.errors import InputError
from fastsim.stats import quantile
from fastsim.stats.histogram import HIGHEST, LOWEST, OCTAVES, QuantileHistogram, fill
from tests.twins import histogram as twin

anything = st.floats(0.0, math.inf) | st.sampled_from(
    [0.0, LOWEST, HIGHEST, 1.0, 2.0, math.nextafter(2.0, 0.0)]
)
probabilities = st.integers(1, 1000).map(lambda k: k / 1000)


@pytest.mark.small
@given(st.lists(anything, max_size=60), st.integers(1, 12))
@settings(max_examples=200, deadline=None, derandomize=True)
def test_kernel_equals_its_twin(values, bits) -> None:
    counts = np.zeros(2 + (OCTAVES << bits), dtype=np.int64)
    fill(counts, bits, np.array(values, dtype=np.float64))
    found = np.flatnonzero(counts)
    assert dict(zip(found.tolist(), counts[found].tolist(), strict=True)) == twin.fill(bits, values)


def test_edges_of_the_range() -> None:
    counts = np.zeros(2 + (OCTAVES << 9), dtype=np.int64)
    fill(counts, 9, np.array([0.0, -0.0, -1.0, -math.inf, math.nextafter(LOWEST, 0.0), 5e-324]))
    assert counts[0] == counts.sum() == 6
    fill(counts, 9, np.array([HIGHEST, math.inf, math.nan]))
    assert counts[-1] == 3
    fill(counts, 9, np.array([LOWEST, math.nextafter(HIGHEST, 0.0)]))
    assert (counts[1], counts[-2]) == (1, 1)


@given(st.lists(anything, min_size=1, max_size=200), probabilities, st.sampled_from([0.25, 0.1, 0.001]))
@settings(max_examples=300, deadline=None, derandomize=True)
def test_quantiles_are_within_the_stated_error(values, p, relative_error) -> None:
    histogram = QuantileHistogram(relative_error)
    histogram.add(values)
    assert histogram.error <= relative_error < 2 * histogram.error
    exact, ours = quantile(values, p), histogram.quantile(p)
    if exact < LOWEST:
        assert ours == 0.0
    elif exact >= HIGHEST:
        assert ours == math.inf
    else:
        assert abs(ours - exact) <= histogram.error * exact
    low, high = histogram.bounds([p])[0]
    assert low <= exact < high or exact == high == math.inf


def test_the_bound_is_attained() -> None:
    """The lower edge of an octave's first bucket is off by the whole error, so no smaller bound would do."""
    histogram = QuantileHistogram(0.001)
    histogram.add([1.0])
    assert histogram.error == 2.0**-10
    assert histogram.quantile(1.0) - 1.0 == histogram.error


@given(st.lists(st.lists(anything, max_size=30), min_size=1, max_size=5), st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_merging_is_exact_in_any_order(runs, random) -> None:
    whole = QuantileHistogram(0.01)
    whole.add([value for run in runs for value in run])
    parts = []
    for run in runs:
        parts.append(QuantileHistogram(0.01))
        parts[-1].add(run)
    random.shuffle(parts)
    merged = QuantileHistogram(0.01)
    for part in parts:
        merged.merge(part)
    assert np.array_equal(merged.counts, whole.counts)
    assert merged.n == sum(map(len, runs))


def test_p99_of_a_long_run() -> None:
    values = np.random.default_rng(1).exponential(10.0, 200_000)
    histogram = QuantileHistogram()
    for part in np.array_split(values, 7):
        histogram.add(part)
    for p, ours in zip((0.5, 0.99, 0.999), histogram.quantiles((0.5, 0.99, 0.999)), strict=True):
        assert ours == pytest.approx(quantile(values, p), rel=2.0**-10)


def test_strided_and_integer_values_are_taken() -> None:
    histogram = QuantileHistogram()
    histogram.add(np.arange(10)[::2])
    assert (histogram.n, histogram.quantile(0.2)) == (5, 0.0)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: QuantileHistogram(0.5), "relative_error is 0.5; it must lie in"),
        (lambda: QuantileHistogram(0.0), "relative_error is 0.0"),
        (lambda: QuantileHistogram().add([1.0, -2.0]), "values holds -2"),
        (lambda: QuantileHistogram().add([1.0, math.nan]), "values holds nan"),
        (lambda: QuantileHistogram().quantile(0.5), "the histogram is empty"),
        (lambda: QuantileHistogram(0.01).merge(QuantileHistogram(0.1)), "other has error 0.0625"),
    ],
)
def test_bad_input_is_one_clear_sentence(call, says) -> None:
    with pytest.raises(InputError, match=says):
        call()


def test_a_refused_batch_leaves_the_counts_alone() -> None:
    histogram = QuantileHistogram()
    with pytest.raises(InputError):
        histogram.add([1.0, math.nan])
    assert histogram.n == 0
