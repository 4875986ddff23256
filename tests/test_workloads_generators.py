"""Synthetic workloads: the registry's contract, common random numbers, and the laws behind them."""

from __future__ import annotations

import math
from collections import Counter

import msgspec
import numpy as np
import pytest
from scipy import stats

from fastsim.errors import InputError
from fastsim.rng import generator
from fastsim.workloads import GENERATORS, make
from fastsim.workloads.arrivals import PROCESSES, arrival_times
from fastsim.workloads.popularity import zipf_ranks

pytestmark = pytest.mark.small

every_generator = pytest.mark.parametrize("name", GENERATORS)

CONTENTS = ("prompt_tok", "output_tok", "symbol_ptr", "symbols", "shared_symbols", "answer", "session")


# Each statistical check below runs once, on a fixed seed, and a right program fails it with this probability.
ALPHA = 1e-6


def z_of(sample: np.ndarray, mean: float, sd: float) -> float:
    """Distance of the sample's mean from `mean` in standard errors, for values of standard deviation `sd`."""
    return abs(sample.mean() - mean) / (sd / math.sqrt(len(sample)))


Z = float(stats.norm.isf(ALPHA / 2))


@every_generator
def test_every_generator_is_described(name):
    entry = GENERATORS[name]
    assert entry.name == name
    assert entry.doc
    assert entry.doc.endswith(".")
    assert all(field.default is not msgspec.NODEFAULT for field in msgspec.structs.fields(entry.params))


@every_generator
def test_every_generator_works_with_defaults_and_repeats_itself(name):
    first, second = make(name), make(name)
    assert first.digest() == second.digest()
    assert first.name == name
    assert f"{name}()" in first.summary.source
    assert make(name, seed=1).digest() != first.digest()
    assert make(name, replicate=1).digest() != first.digest()


@pytest.mark.parametrize("name", [name for name, entry in GENERATORS.items() if entry.stretches])
def test_rates_share_their_requests(name):
    slow = make(name, rate_rps=0.7, requests=400)
    fast = make(name, rate_rps=5.6, requests=400)
    for column in CONTENTS:
        np.testing.assert_array_equal(getattr(slow, column), getattr(fast, column))
    np.testing.assert_array_equal(slow.symbol_tok, fast.symbol_tok)
    np.testing.assert_allclose(slow.arrival_s * 0.7, fast.arrival_s * 5.6, rtol=1e-15, atol=0)


@pytest.mark.parametrize("name", [name for name, entry in GENERATORS.items() if not entry.stretches])
def test_rates_share_their_requests_where_times_of_their_own_order_them(name):
    fast = make(name, rate_rps=50.0, requests=400)
    slow = make(name, rate_rps=0.7, requests=4000)
    rows = [Counter(zip(w.prompt_tok.tolist(), w.output_tok.tolist(), strict=True)) for w in (fast, slow)]
    assert not rows[0] - rows[1]


@every_generator
@pytest.mark.parametrize("arrivals", PROCESSES)
def test_a_longer_run_starts_as_a_shorter_one(name, arrivals):
    short = make(name, duration_s=50, rate_rps=3.0, arrivals=arrivals)
    long = make(name, duration_s=200, rate_rps=3.0, arrivals=arrivals)
    n = len(short)
    np.testing.assert_array_equal(short.arrival_s, long.arrival_s[:n])
    np.testing.assert_array_equal(short.prompt_tok, long.prompt_tok[:n])
    np.testing.assert_array_equal(short.output_tok, long.output_tok[:n])
    assert short.arrival_s[-1] < 50
    assert long.arrival_s[n] >= 50


@every_generator
def test_duration_and_number_of_requests(name):
    assert len(make(name, requests=17)) == 17
    assert make(name, duration_s=30.0).arrival_s[-1] < 30.0
    assert make(name).arrival_s[-1] < 600.0
    with pytest.raises(InputError, match="give one of them, not both"):
        make(name, requests=17, duration_s=30.0)
    with pytest.raises(InputError, match="nothing arrives within"):
        make(name, rate_rps=1e-9)
    with pytest.raises(InputError, match=r"about 6e\+09 are too many"):
        make(name, rate_rps=1e7)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"rate": 2.0}, r"workload long_documents: it has no parameter 'rate'; did you mean 'rate_rps'\?"),
        ({"rate_rps": 0}, r"rate_rps = 0 is not allowed; it must be a number, above 0 and at most 1e\+07"),
        ({"rate_rps": float("inf")}, "rate_rps = inf is not allowed"),
        ({"rate_rps": float("nan")}, "rate_rps = nan is not allowed"),
        ({"rate_rps": "2"}, "rate_rps = '2' is not allowed; it must be a number, above 0 and at most"),
        ({"documents": 0}, "documents = 0 is not allowed; it must be a whole number from 1 to"),
        ({"documents": True}, "documents = True is not allowed; it must be a whole number from 1 to"),
        ({"documents": 2.5}, r"documents = 2\.5 is not allowed; it must be a whole number from 1 to"),
        ({"zipf": -1.0}, r"zipf = -1\.0 is not allowed; it must be a number from 0 to 10"),
        ({"arrivals": "gama"}, r"arrivals = 'gama' is not allowed; did you mean 'gamma'\?"),
    ],
)
def test_wrong_parameters_are_refused_with_what_is_right(params, message):
    with pytest.raises(InputError, match=message):
        make("long_documents", **params)


def test_wrong_names_and_seeds_are_refused():
    with pytest.raises(InputError, match=r"'long_docs' is not known; did you mean 'long_documents'\?"):
        make("long_docs")
    with pytest.raises(InputError, match="seed = -1 is not allowed; it must be a whole number, at least 0"):
        make("unique", seed=-1)
    with pytest.raises(InputError, match=r"replicate = 0\.5 is not allowed"):
        make("unique", replicate=0.5)  # pyright: ignore[reportArgumentType]


def test_numpy_numbers_are_numbers():
    a = make("long_documents", requests=np.int64(20), rate_rps=np.float64(2.0))
    assert a.digest() == make("long_documents", requests=20, rate_rps=2.0).digest()


@pytest.mark.parametrize(("process", "cv"), [("poisson", 1.0), ("gamma", 0.5), ("gamma", 3.0)])
def test_gaps_have_the_law_asked_for(process, cv):
    gaps = PROCESSES[process](generator(7, 0, "arrivals"), 200_000, cv)
    law = stats.gamma(1 / cv**2, scale=cv**2)
    assert stats.kstest(gaps, law.cdf).pvalue > ALPHA
    times = arrival_times(generator(7, 0, "arrivals"), process, 4.0, cv=cv, requests=200_000)
    np.testing.assert_array_equal(times, np.cumsum(gaps) / 4.0)


def test_deterministic_gaps_are_equal():
    times = arrival_times(generator(7, 0, "arrivals"), "deterministic", 4.0, duration_s=2.0)
    assert times.tolist() == [0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75]


def test_poisson_counts_have_the_poisson_law():
    counts = np.array([len(make("unique", replicate=r, duration_s=20.0, rate_rps=2.0)) for r in range(400)])
    assert z_of(counts, 40.0, math.sqrt(40.0)) < Z
    # The index of dispersion of n Poisson counts times n - 1 is nearly chi-square with n - 1 degrees.
    dispersion = counts.var(ddof=1) / counts.mean() * (len(counts) - 1)
    assert stats.chi2.cdf(dispersion, len(counts) - 1) > ALPHA / 2
    assert stats.chi2.sf(dispersion, len(counts) - 1) > ALPHA / 2


def test_unique_prompts_share_nothing():
    workload = make("unique", requests=50, prompt_tok=640, output_tok=3)
    assert len(workload.symbols) == 0
    assert set(workload.prompt_tok.tolist()) == {640}
    assert set(workload.output_tok.tolist()) == {3}
    spread = make("unique", requests=20_000, prompt_tok=640, prompt_cv=0.25, output_tok=300, output_cv=0.1)
    assert z_of(spread.prompt_tok, 640, 160) < Z
    assert z_of(spread.output_tok, 300, 30) < Z


def test_zipf_has_the_shares_the_lecture_names():
    ranks = zipf_ranks(generator(3, 0, "popularity"), 200_000, 300, 1.1)
    weight = np.arange(1, 301) ** -1.1
    expected = weight / weight.sum()
    assert [round(100 * share, 1) for share in expected[:3]] == [20.3, 9.5, 6.1]
    observed = np.bincount(ranks, minlength=300)
    assert stats.chisquare(observed, expected * len(ranks)).pvalue > ALPHA
    assert set(zipf_ranks(generator(3, 0, "popularity"), 2_000, 4, 0.0).tolist()) == {0, 1, 2, 3}


def test_long_documents_have_the_lecture_s_shape():
    workload = make("long_documents", requests=20_000)
    n = len(workload)
    parts = workload.symbols.reshape(n, 3)
    system, document, question = workload.symbol_tok[parts].T
    assert workload.symbol_ptr.tolist() == list(range(0, 3 * n + 1, 3))
    assert set(workload.shared_symbols.tolist()) == {2}
    assert set(parts[:, 0].tolist()) == {0}
    assert set(system.tolist()) == {13}
    assert parts[:, 1].min() >= 1
    assert parts[:, 1].max() <= 300
    assert len(set(parts[:, 2].tolist())) == n
    np.testing.assert_array_equal(workload.prompt_tok, system + document + question)
    documents = workload.symbol_tok[1:301]
    assert documents.min() >= 500
    assert z_of(documents, 21_000, 0.26 * 21_000) < Z
    assert z_of(question, 1_987, 0.3 * 1_987) < Z
    # The output's normal law is cut at 1: P(X < 1.5) = 0.065 sits there, and the mean rises by 0.27.
    z = np.arange(1.5, 200.0)
    mean = 1 + stats.norm.sf(z, 16, 9.6).sum()
    assert z_of(workload.output_tok, mean, 9.6) < Z
    assert workload.output_tok.min() == 1


def test_document_lengths_do_not_depend_on_popularity():
    rank = np.arange(300)
    lengths = [make("long_documents", replicate=r, requests=1).symbol_tok[1:301] for r in range(50)]
    correlation = np.array([np.corrcoef(rank, length)[0, 1] for length in lengths])
    assert z_of(correlation, 0.0, 1 / math.sqrt(299)) < Z
