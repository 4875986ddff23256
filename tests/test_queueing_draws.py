"""Random numbers and balls against their twins in plain Python, bit for bit on the same streams."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastsim.queueing import blind, draws, throws
from fastsim.queueing.laws import BoundedPareto, Erlang, Hyperexponential, Lognormal, Pareto, Weibull
from fastsim.rng import stream, uniform
from tests.queueing_runs import SEED, same_bits, same_run, twin_stream
from tests.twins import queueing as twin


@pytest.mark.small
def test_register_generator_equals_the_stream() -> None:
    ours, reference = stream(SEED, 0, "routing"), twin_stream(0, "routing")
    out = np.empty(500, np.int64)
    for span in (1, 2, 3, 16, 1000, 2**31 + 5, 2**32):
        blind.random_targets(ours, out, span)
        assert out.tolist() == [reference.below(span) for _ in range(out.size)]
    assert uniform(ours) == reference.uniform()


@pytest.mark.small
def test_logarithm() -> None:
    """Against its twin bit for bit, against the C library's to two units in the last place."""
    edges = [1.0, math.nextafter(1.0, 0.0), 0.5, math.sqrt(0.5), math.nextafter(math.sqrt(0.5), 0), 2.0**-53]
    random = np.random.default_rng(SEED).random(3000)
    for x in [*edges, *(1.0 - random), *random**20]:
        ours = float(draws.minus_log(float(x)))
        assert twin.bits_of(ours) == twin.bits_of(twin.minus_log(float(x)))
        assert abs(ours + math.log(x)) <= 2.0 * math.ulp(math.log(x) or 0.0)


LAWS = [
    (Erlang(phases=3), lambda rng, n: twin.erlangs(rng, n, 3, 0.0, 1.0 / 3.0)),
    (
        Hyperexponential(cv=3.0),
        lambda rng, n: twin.hyperexponentials(
            rng,
            n,
            Hyperexponential(cv=3.0).first,
            1.0 / (2.0 * Hyperexponential(cv=3.0).first),
            1.0 / (2.0 * (1.0 - Hyperexponential(cv=3.0).first)),
        ),
    ),
    (Lognormal(cv=2.0), lambda rng, n: twin.lognormals(rng, n, Lognormal().mu, Lognormal().sigma)),
    (Weibull(shape=0.7), lambda rng, n: twin.weibulls(rng, n, 0.7, Weibull(shape=0.7).scale)),
    (Pareto(alpha=1.5), lambda rng, n: twin.paretos(rng, n, 1.5, Pareto(alpha=1.5).low, 1.0)),
    (
        BoundedPareto(alpha=1.1, ratio=100.0),
        lambda rng, n: twin.paretos(
            rng, n, 1.1, BoundedPareto(alpha=1.1, ratio=100.0).low, 1.0 - 100.0**-1.1
        ),
    ),
]


@pytest.mark.small
@pytest.mark.parametrize(("law", "plain"), LAWS, ids=[law.name for law, _ in LAWS])
def test_laws(law, plain) -> None:
    out = np.empty(400)
    law.fill(stream(SEED, 1, "sizes"), out)
    same_bits(out, plain(twin_stream(1, "sizes"), out.size))


@pytest.mark.small
def test_mixed_erlang_and_resampling() -> None:
    law = Erlang(cv=0.6)
    phases, fewer = law._mixture()
    assert phases == 3
    assert 0.0 < fewer < 1.0
    out = np.empty(400)
    law.fill(stream(SEED, 2, "sizes"), out)
    same_bits(out, twin.erlangs(twin_stream(2, "sizes"), out.size, phases, fewer, 1.0 / (phases - fewer)))
    values = np.array([3.0, 1.0, 2.0])
    draws.resampled(stream(SEED, 3, "sizes"), out, values)
    same_bits(out, twin.resampled(twin_stream(3, "sizes"), out.size, values.tolist()))


@pytest.mark.small
def test_arrivals() -> None:
    out, state = np.empty(400), stream(SEED, 4, "arrivals")
    draws.poisson_times(state, out, 0.0, 0.25)
    more = np.empty(100)
    draws.poisson_times(state, more, out[-1], 0.25)
    same_bits([*out, *more], twin.poisson_times(twin_stream(4, "arrivals"), 500, 0.0, 0.25))
    rates, stays = np.array([3.0, 0.0, 0.5]), np.array([2.0, 5.0, 4.0])
    state, phase = stream(SEED, 5, "arrivals"), np.array([0.0, math.nan])
    draws.modulated_times(state, out, 0.0, phase, rates, stays)
    draws.modulated_times(state, more, out[-1], phase, rates, stays)
    theirs = twin.modulated_times(twin_stream(5, "arrivals"), 500, rates.tolist(), stays.tolist())
    same_bits([*out, *more], theirs)


@pytest.mark.small
@given(
    bins=st.integers(1, 40),
    n=st.integers(1, 120),
    d=st.integers(1, 5),
    kind=st.sampled_from(["with", "without", "left"]),
    beta=st.sampled_from([0.0, 0.4, 1.0]),
    replicate=st.integers(0, 1000),
)
@same_run
def test_balls(bins, n, d, kind, beta, replicate) -> None:
    d = min(d, bins)
    left, deck = kind == "left", np.arange(bins if kind == "without" else 0)
    beta = 1.0 if left else beta
    reference = twin_stream(replicate, "routing")
    cards = list(range(bins)) if kind == "without" else None
    state, counts, most = stream(SEED, replicate, "routing"), np.zeros(bins, np.int32), np.zeros(3, np.int64)
    theirs = [max(twin.balls(reference, bins, [1.0] * n, d, beta=beta, left=left, deck=cards)) for _ in most]
    throws.any_choices(state, counts, n, d, beta, left, deck, most)
    assert most.tolist() == theirs
    weights = np.random.default_rng(replicate).random(n)
    loads = np.zeros(bins)
    most_weight = throws.weighted_choices(state, loads, weights, d, beta, left, deck)
    their_loads = twin.balls(reference, bins, weights.tolist(), d, beta=beta, left=left, deck=cards)
    same_bits(loads, their_loads)
    assert most_weight == max(their_loads)


@pytest.mark.small
@pytest.mark.parametrize(("kernel", "d"), [(throws.one_choice, 1), (throws.two_choices, 2)])
def test_fast_balls(kernel, d) -> None:
    state, reference = stream(SEED, 6, "routing"), twin_stream(6, "routing")
    most = np.zeros(4, np.int64)
    kernel(state, np.zeros(50, np.int32), 200, most)
    assert most.tolist() == [max(twin.balls(reference, 50, [1.0] * 200, d)) for _ in most]
