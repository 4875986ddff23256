"""Parallel generations and groups of samples: one prompt, several requests, at times of their own."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastsim.errors import InputError
from fastsim.rng import generator
from fastsim.workloads import make
from fastsim.workloads.traffic import Traffic, bursts

pytestmark = pytest.mark.small


def stream(purpose: str) -> np.random.Generator:
    return generator(11, 0, purpose)


@given(
    st.integers(1, 60), st.floats(0.05, 50.0), st.integers(0, 2**32), st.sampled_from(["poisson", "gamma"])
)
@settings(max_examples=100, deadline=None, derandomize=True)
def test_bursts_are_the_first_requests_of_all_that_start(wanted, rate_rps, seed, process):
    """The slow way draws as many bursts as requests, for each has one at least, and sorts them all."""

    def members(count: int) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(seed)
        sizes, gaps = rng.integers(1, 6, wanted)[:count], rng.random((wanted, 6)) * 4.0
        offsets = [np.concatenate(([0.0], np.cumsum(gaps[i, : size - 1]))) for i, size in enumerate(sizes)]
        return sizes, np.concatenate(offsets)

    spec = Traffic(rate_rps=rate_rps, requests=wanted, arrivals=process)
    arrival_s, which, counts = bursts(spec, stream, 3.0, members)
    starts_s = np.cumsum(
        stream("arrivals").standard_exponential(wanted)
        if process == "poisson"
        else stream("arrivals").standard_gamma(1.0, wanted)
    ) / (rate_rps / 3.0)
    sizes, offset_s = members(wanted)
    all_s = np.repeat(starts_s, sizes) + offset_s
    order = sorted(range(len(all_s)), key=lambda i: (all_s[i], i))[:wanted]
    assert which.tolist() == order
    assert arrival_s.tolist() == [all_s[i] for i in order]
    assert counts.tolist() == sizes[: len(counts)].tolist()
    # What comes before some time does not depend on how it was asked for.
    end_s = float(arrival_s[-1])
    spec = Traffic(rate_rps=rate_rps, duration_s=end_s, arrivals=process)
    if end_s > starts_s[0]:
        timely = bursts(spec, stream, 3.0, members)
        assert timely[0].tolist() == [s for s in arrival_s.tolist() if s < end_s]


def test_generations_follow_each_other_with_one_prompt():
    workload = make("programming", requests=800, rate_rps=0.5, arrivals="deterministic")
    arrival_s = workload.arrival_s.reshape(100, 8)
    np.testing.assert_allclose(np.diff(arrival_s, axis=1), 0.05, rtol=1e-9)
    np.testing.assert_allclose(np.diff(arrival_s[:, 0]), 16.0, rtol=1e-9)
    parts = workload.symbols.reshape(100, 8, 2)
    assert (parts == parts[:, :1]).all()
    assert (parts[:, :, 0] == 0).all()
    assert parts[:, :, 1].min() >= 1
    assert parts[:, :, 1].max() <= 150
    problem_tok = workload.symbol_tok[parts[:, 0, 1]]
    assert workload.prompt_tok.reshape(100, 8).tolist() == [[735 + t + 116] * 8 for t in problem_tok.tolist()]
    assert len(set(workload.output_tok[:8].tolist())) > 4


def test_samples_of_a_group_are_identical_and_come_at_once():
    workload = make("group_sampling", requests=1600, samples=16)
    by_group = workload.arrival_s.reshape(100, 16)
    assert (by_group == by_group[:, :1]).all()
    assert (np.diff(by_group[:, 0]) > 0).all()
    parts = workload.symbols.reshape(100, 16, 2)
    assert (parts == parts[:, :1]).all()
    assert len(set(parts[:, 0, 1].tolist())) == 100
    np.testing.assert_array_equal(workload.symbol_tok[parts].sum(axis=2).ravel(), workload.prompt_tok)


@pytest.mark.parametrize("name", ["programming", "group_sampling"])
def test_the_system_prompt_may_be_left_out(name):
    workload = make(name, requests=100, system_tok=0)
    assert set(np.diff(workload.symbol_ptr).tolist()) == {1}
    with_it = make(name, requests=100, system_tok=50)
    assert (with_it.prompt_tok - workload.prompt_tok == 50).all()


def test_too_many_requests_are_refused_before_anything_is_drawn():
    with pytest.raises(InputError, match=r"requests: about 6e\+07 are too many"):
        make("group_sampling", requests=60_000_000, samples=100_000)
