"""How requests spread over items, and the laws of lengths."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fastsim.errors import InputError
from fastsim.rng import generator
from fastsim.workloads import make
from fastsim.workloads.popularity import Popular, choose
from fastsim.workloads.traffic import Sized, lengths

pytestmark = pytest.mark.small

# Each statistical check runs once, on a fixed seed, and a right program fails it with this probability.
ALPHA = 1e-6
DRAWS = 100_000


def drawn(spec: Popular, items: int, size: np.ndarray | None = None, count: int = DRAWS) -> np.ndarray:
    return choose(spec, generator(5, 0, "popularity"), count, items, size)


def has_shares(items: np.ndarray, shares: np.ndarray) -> bool:
    observed = np.bincount(items, minlength=len(shares))
    return stats.chisquare(observed, shares / shares.sum() * len(items)).pvalue > ALPHA


def test_the_hottest_has_its_share_and_the_others_keep_their_proportions():
    shares = np.arange(1, 51) ** -1.1
    shares[1:] *= 0.6 / shares[1:].sum()
    shares[0] = 0.4
    assert has_shares(drawn(Popular(hottest_share=0.4), 50), shares)
    assert not has_shares(drawn(Popular(), 50), shares)


def test_items_may_be_asked_about_by_their_size():
    size = np.linspace(1.0, 9.0, 40)
    assert has_shares(drawn(Popular(zipf=0.0), 40, size), size)
    assert has_shares(drawn(Popular(zipf=0.7), 40, size), size * np.arange(1, 41) ** -0.7)


def test_a_data_set_is_played_once_in_random_order_then_again():
    spec = Popular(instances=39.0, instances_cv=1.64)
    once = drawn(spec, 400, count=1)
    entries = np.bincount(drawn(spec, 400, count=15_597))
    size = int(entries.sum())
    assert size == 15_597
    assert entries.mean() == pytest.approx(39.0, rel=0.001)
    assert entries.std() / entries.mean() == pytest.approx(1.64, rel=0.05)
    assert (np.diff(entries) <= 0).all()
    twice = drawn(spec, 400, count=2 * size)
    assert np.bincount(twice[size:]).tolist() == entries.tolist()
    assert (twice[size:] != twice[:size]).any()
    assert twice[0] == once[0]
    assert np.bincount(drawn(Popular(instances=3.0), 7, count=21)).tolist() == [3] * 7


def test_what_excludes_each_other_is_refused():
    with pytest.raises(InputError, match="workload tool_use: instances: it cannot be given together with"):
        make("tool_use", instances=3, hottest_share=0.4)
    with pytest.raises(InputError, match=r"workload video_qa: instances: it cannot .* or by_length"):
        make("video_qa", instances=3, by_length=True)
    with pytest.raises(InputError, match=r"hottest_share = 0\.4 is not allowed with a single item"):
        make("tool_use", tools=1, hottest_share=0.4)
    with pytest.raises(
        InputError, match=r"hottest_share = 1\.0 is not allowed; it must be a number, above 0 and below 1"
    ):
        make("tool_use", hottest_share=1.0)


@pytest.mark.parametrize("cv", [0.26, 1.8])
def test_lognormal_lengths_keep_mean_and_cv(cv):
    tokens = lengths(Sized(length_law="lognormal"), generator(3, 0, "x"), DRAWS, 20_000.0, cv)
    sigma = np.sqrt(np.log1p(cv * cv))
    law = stats.lognorm(sigma, scale=20_000.0 / np.sqrt(1 + cv * cv))
    assert stats.kstest(tokens, law.cdf).pvalue > ALPHA
    assert law.mean() == pytest.approx(20_000.0)
    assert law.std() == pytest.approx(20_000.0 * cv)


def test_short_lengths_are_raised_to_the_least():
    for law in ("normal", "lognormal"):
        tokens = lengths(Sized(length_law=law), generator(3, 0, "x"), 1000, 10.0, 1.0, 8)
        assert tokens.min() == 8
        assert np.count_nonzero(tokens == 8) > 300
