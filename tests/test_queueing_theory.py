"""Closed forms against known values, against one another, and against sums done another way."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from fastsim.errors import InputError
from fastsim.queueing import fluid, theory
from fastsim.queueing.balls_theory import asymptotic_max, from_tails, one_choice_max
from fastsim.queueing.laws import (
    BoundedPareto,
    Deterministic,
    Empirical,
    Erlang,
    Exponential,
    Hyperexponential,
    Lognormal,
    Pareto,
    Weibull,
    law,
    with_cv,
)
from fastsim.rng import stream

# mean time with d choices, infinitely many servers, service mean 1
SUPERMARKET = {
    0.5: (2.0, 1.26569, 1.12524, 1.03125),
    0.7: (3.33333, 1.61445, 1.35684, 1.16809),
    0.8: (5.0, 1.94736, 1.58089, 1.32892),
    0.9: (10.0, 2.61406, 2.02786, 1.63288),
    0.95: (20.0, 3.38305, 2.53513, 1.98877),
    0.99: (100.0, 5.43200, 3.85785, 2.90168),
}
# servers, utilisation: probability of waiting and mean response, service mean 1
ERLANG_C = {
    (2, 0.9): (0.852632, 5.263158),
    (4, 0.9): (0.787753, 2.969383),
    (8, 0.8): (0.457645, 1.286028),
    (8, 0.9): (0.701533, 1.876916),
    (16, 0.5): (0.009019, 1.001127),
    (16, 0.8): (0.304884, 1.095276),
    (16, 0.9): (0.591343, 1.369590),
    (16, 0.95): (0.780192, 1.975241),
    (32, 0.9): (0.458197, 1.143186),
}


@pytest.mark.parametrize("rho", SUPERMARKET)
def test_supermarket(rho) -> None:
    for d, mean in zip((1, 2, 3, 5), SUPERMARKET[rho], strict=True):
        assert theory.Supermarket(rho, d).response_mean == pytest.approx(mean, abs=5e-6)
    tails = [theory.Supermarket(0.9, 2).tail(i) for i in range(7)]
    np.testing.assert_allclose(tails, [1, 0.9, 0.729, 0.478297, 0.205891, 0.038152, 0.00131], atol=5e-7)


@pytest.mark.parametrize(("servers", "rho"), ERLANG_C)
def test_erlang_c(servers, rho) -> None:
    queue = theory.MMc(servers * rho, 1.0, servers)
    waits, response = ERLANG_C[servers, rho]
    assert queue.wait_probability == pytest.approx(waits, abs=5e-7)
    assert queue.response_mean == pytest.approx(response, abs=5e-7)
    # from the definition, with exact fractions
    a = Fraction(servers) * Fraction(str(rho))
    last = a**servers / math.factorial(servers) / (1 - Fraction(str(rho)))
    exact = last / (sum(a**k / math.factorial(k) for k in range(servers)) + last)
    assert queue.wait_probability == pytest.approx(float(exact), rel=1e-13)


def test_erlang_c_of_many_servers() -> None:
    assert theory.erlang_c(100_000, 99_900.0) == pytest.approx(0.66, abs=0.02)  # no overflow on the way


def test_one_server_of_many() -> None:
    """M/M/1 is M/M/c for c = 1, E_1/M/1, M/G/1 with exponential sizes and the supermarket with one choice."""
    one, many = theory.MM1(1.6, 2.0), theory.MMc(1.6, 2.0, 1)
    for same in (many, theory.ErlangM1(1.6, 1, 2.0), theory.MG1(1.6, 0.5, 0.5)):
        assert same.response_mean == pytest.approx(one.response_mean, rel=1e-12)
        assert same.wait_mean == pytest.approx(one.wait_mean, rel=1e-12)
    for p in (0.0, 0.1, 0.5, 0.99, 0.9999):
        for same in (many, theory.ErlangM1(1.6, 1, 2.0)):
            assert same.response_quantile(p) == pytest.approx(one.response_quantile(p), rel=1e-12, abs=1e-15)
            assert same.wait_quantile(p) == pytest.approx(one.wait_quantile(p), rel=1e-12, abs=1e-15)
    assert theory.MG1PS(1.6, 0.5).response_mean == pytest.approx(one.response_mean)
    assert theory.Supermarket(1.6, 1, 2.0).response_mean == pytest.approx(one.response_mean)
    assert theory.kingman(1.6, 0.5, 1.0, 1.0) == pytest.approx(one.wait_mean)
    assert one.queue_length_mean == pytest.approx(1.6 * one.response_mean)


def test_mmc_response_law() -> None:
    """Its mean is the integral of the tail; rates that coincide (c - 1 = a) need the limit of the formula."""
    for arrival, servers in ((7.2, 8), (7.0, 8), (7.0 + 1e-13, 8), (0.5, 2)):
        queue = theory.MMc(arrival, 1.0, servers)
        t = np.linspace(0.0, 200.0, 400_001)
        tail = np.array([queue.response_tail(x) for x in t[::20]])
        assert np.trapezoid(tail, t[::20]) == pytest.approx(queue.response_mean, rel=2e-5)
        p99 = queue.response_quantile(0.99)
        assert queue.response_tail(p99) == pytest.approx(0.01, rel=1e-12)


def test_md1_wait_law() -> None:
    """Against Crommelin's alternating series where it keeps its digits, and against its own mean."""
    queue = theory.MD1(0.8)
    for t in (0.0, 0.3, 1.0, 2.5, 7.9, 12.0):
        crommelin = sum(
            0.2 * math.exp(0.8 * (t - k)) * (-0.8 * (t - k)) ** k / math.factorial(k)
            for k in range(int(t) + 1)
        )
        assert queue.wait_cdf(t) == pytest.approx(crommelin, rel=1e-9)
    for rho in (0.3, 0.9, 0.99):
        queue = theory.MD1(rho / 2.0, 2.0)
        assert queue.wait_mean == pytest.approx(rho * 2.0 / (2.0 * (1.0 - rho)))
        for p in (0.5, 0.9, 0.99, 0.999):
            t = queue.wait_quantile(p)
            assert queue.wait_cdf(t) == pytest.approx(max(p, 1.0 - rho), abs=1e-9)
    queue = theory.MD1(0.9)
    t = np.linspace(0.0, 150.0, 15_001)
    assert np.trapezoid([1.0 - queue.wait_cdf(x) for x in t], t) == pytest.approx(4.5, rel=1e-4)


def test_approximations_meet_the_exact_forms() -> None:
    lognormal = Lognormal(cv=2.0)
    exact = theory.MG1(0.8, 1.0, lognormal.second_moment).wait_mean
    assert theory.kingman(0.8, 1.0, 1.0, lognormal.scv) == pytest.approx(exact)
    assert theory.allen_cunneen(7.2, 1.0, 8, 1.0, 1.0) == pytest.approx(theory.MMc(7.2, 1.0, 8).wait_mean)


def test_round_robin_limits() -> None:
    """More phases wait less, down to D/M/1, whose root solves s = exp(-(1 - s) / rho)."""
    waits = [theory.ErlangM1(0.9, k).wait_mean for k in (1, 2, 16, 1000)]
    assert waits == sorted(waits, reverse=True)
    s = theory.ErlangM1(0.9, 10_000_000).wait_probability
    assert s == pytest.approx(math.exp(-(1.0 - s) / 0.9), abs=1e-6)


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: theory.MM1(1.0), "utilisation"),
        (lambda: theory.MM1(-1.0), "arrival_rate"),
        (lambda: theory.MM1(0.5, math.nan), "service_rate"),
        (lambda: theory.MM1(0.5).response_quantile(1.0), r"\[0, 1\)"),
        (lambda: theory.MMc(8.0, 1.0, 8), "utilisation"),
        (lambda: theory.MMc(8.0, 1.0, 0), "servers"),
        (lambda: theory.erlang_c(2, 2.5), "utilisation"),
        (lambda: theory.MG1(0.5, 1.0, math.inf), "finite variance"),
        (lambda: theory.kingman(0.5, 1.0, 1.0, math.inf), "service_scv"),
        (lambda: theory.MG1PS(2.0, 0.5), "utilisation"),
        (lambda: theory.Supermarket(0.5, 0), "d is 0"),
        (lambda: theory.periodic_update(0.9, -1.0), "period"),
        (lambda: theory.periodic_update(1.0, 1.0), "utilisation"),
        (lambda: theory.periodic_update(0.9, 50.0, None), "queues grow beyond"),
        (lambda: theory.ErlangM1(0.5, 0), "phases"),
        (lambda: one_choice_max(0, 3), "balls"),
        (lambda: asymptotic_max(2, 1), "bins"),
    ],
)
def test_bad_input_is_named(make, word) -> None:
    with pytest.raises(InputError, match=word):
        make()


def test_periodic_update_limits() -> None:
    """A fresh board is the supermarket model; an old one makes two choices as bad as one and worse."""
    fresh = theory.periodic_update(0.9, 1e-4).response_mean
    assert fresh == pytest.approx(theory.Supermarket(0.9, 2).response_mean, rel=3e-5)
    assert theory.periodic_update(0.9, 4.0, 1).response_mean == pytest.approx(10.0)
    means = [theory.periodic_update(0.9, period).response_mean for period in (1.0, 10.0, 50.0)]
    assert means == sorted(means)
    board = theory.periodic_update(0.9, 1.0)
    assert board.stationary
    assert board.board.sum() == pytest.approx(1.0)
    wandering = theory.periodic_update(0.9, 10.0, None)
    assert not wandering.stationary
    # time measured in other units
    scaled = theory.periodic_update(1.8, 0.5, 2, 2.0).response_mean
    assert scaled == pytest.approx(means[0] / 2.0, rel=1e-8)


def test_periodic_update_against_an_integration() -> None:
    """The same limit by small Euler steps on fractions by posted and true length."""
    lam, period, longest, steps = 0.5, 1.0, 24, 1500
    state = np.zeros((longest, longest))
    state[0, 0] = 1.0
    number = 0.0
    for _ in range(25):
        by_true = state.sum(axis=0)
        state = np.diag(by_true)
        at_least = np.append(np.cumsum(by_true[::-1])[::-1], 0.0)
        with np.errstate(invalid="ignore"):
            rate = (
                lam * np.where(by_true > 0, (at_least[:-1] ** 2 - at_least[1:] ** 2) / by_true, 0.0)[:, None]
            )
        number = 0.0
        h = period / steps
        for _ in range(steps):
            number += h / period * float(state.sum(axis=0) @ np.arange(longest))
            up, down = h * rate * state, h * state
            change = -up
            change[:, 1:] += up[:, :-1] - down[:, 1:]
            change[:, :-1] += down[:, 1:]
            change[:, -1] += up[:, -1]
            state = state + change
    assert theory.periodic_update(lam, period).queue_length_mean == pytest.approx(number, rel=1e-3)


def brute_force_max(balls: int, bins: int) -> list[float]:
    """P(max = k) from the generating function in exact fractions."""
    cdf = [Fraction(0)]
    for k in range(1, balls + 1):
        ways = [Fraction(1)] + [Fraction(0)] * balls
        for _ in range(bins):
            ways = [
                sum((ways[i - j] / math.factorial(j) for j in range(min(k, i) + 1)), Fraction(0))
                for i in range(balls + 1)
            ]
        cdf.append(ways[balls] * math.factorial(balls) / Fraction(bins) ** balls)
    return [float(b - a) for a, b in itertools.pairwise(cdf)]


@pytest.mark.parametrize(
    ("balls", "bins"), [(1, 1), (1, 5), (5, 1), (6, 3), (12, 4), (10, 12), (20, 7), (24, 3)]
)
def test_one_choice_exactly(balls, bins) -> None:
    law_of_max = one_choice_max(balls, bins)
    exact = brute_force_max(balls, bins)
    np.testing.assert_allclose([law_of_max.pmf(k) for k in range(1, balls + 1)], exact, rtol=0, atol=1e-12)
    assert law_of_max.mean == pytest.approx(sum((k + 1) * p for k, p in enumerate(exact)), rel=1e-12)


def test_one_choice_of_many() -> None:
    law_of_max = one_choice_max(100_000, 100_000)
    assert law_of_max.mean == pytest.approx(7.76, abs=0.01)
    assert sum(law_of_max.pmf(k) for k in range(8, 30)) == pytest.approx(0.64, abs=0.005)
    assert law_of_max.quantile(0.5) == 8
    assert law_of_max.probability.sum() == pytest.approx(1.0, abs=1e-12)
    assert one_choice_max(1_000_000, 1_000_000).mean == pytest.approx(8.79, abs=0.01)
    assert one_choice_max(100_000, 100).mean == pytest.approx(1000 + 2.5 * math.sqrt(1000), rel=0.01)


def test_balls_in_the_limit() -> None:
    poisson = [1.0 - sum(math.exp(-1.0) / math.factorial(j) for j in range(i)) for i in range(8)]
    np.testing.assert_allclose(fluid.balls_tails(1.0, 1)[:8], poisson, rtol=1e-8)
    np.testing.assert_allclose(fluid.left_tails(1.0, 1)[:8], poisson, rtol=1e-8)
    np.testing.assert_allclose(fluid.balls_tails(1.0, 2, 0.0)[:8], poisson, rtol=1e-8)
    for tails in (fluid.balls_tails(3.0, 2), fluid.balls_tails(3.0, 3, 0.3), fluid.left_tails(3.0, 3)):
        assert tails[1:].sum() == pytest.approx(3.0, rel=1e-10)  # no ball is lost
    assert fluid.left_tails(1.0, 2)[4] < fluid.balls_tails(1.0, 2)[4]
    one = from_tails(fluid.balls_tails(1.0, 1), 100_000)
    assert one.mean == pytest.approx(one_choice_max(100_000, 100_000).mean, rel=2e-3)
    assert fluid.balls_tails(1.0, 1).size > 100


def test_asymptotics_of_the_lecture() -> None:
    values = [asymptotic_max(n, d) for n in (10**5, 10**6) for d in (1, 2)]
    np.testing.assert_allclose(values, [4.71, 3.53, 5.26, 3.79], atol=0.005)


ALL_LAWS = [
    Deterministic(2.0),
    Exponential(0.5),
    Erlang(2.0, phases=3),
    Erlang(cv=0.6),
    Hyperexponential(cv=3.0),
    Lognormal(2.0, cv=0.5),
    Weibull(shape=0.8),
    Pareto(alpha=4.5),
    BoundedPareto(alpha=1.5, ratio=100.0),
    BoundedPareto(2.0, alpha=1.0, ratio=50.0),
    BoundedPareto(2.0, alpha=2.0, ratio=50.0),
    Empirical(np.array([1.0, 2.0, 6.0])),
    Empirical(np.array([1.0, 2.0, 6.0]), mean=1.0),
]


@pytest.mark.parametrize("size", ALL_LAWS, ids=[x.name for x in ALL_LAWS])
def test_moments(size) -> None:
    """Means of a million draws within 4.5 standard errors (1 in 150,000 each), partial means too."""
    x = np.empty(1_000_000)
    size.fill(stream(11, 0, "sizes"), x)
    assert x.min() >= 0.0
    samples = [(x, size.mean), (x * x, size.second_moment)]
    if not isinstance(size, Deterministic):
        cuts = (0.3 * size.mean, 2.5 * size.mean)
        samples += [(np.where(x <= cut, x, 0.0), size.partial_mean(cut)) for cut in cuts]
        assert size.partial_mean(1e9 * size.mean) == pytest.approx(size.mean, rel=1e-6)
    for values, expected in samples:
        error = values.std() / 1000.0
        assert abs(values.mean() - expected) <= 4.5 * error + 1e-12
    assert size.scv == pytest.approx(size.second_moment / size.mean**2 - 1.0)


def test_laws_by_coefficient_of_variation() -> None:
    for cv in (0.0, 0.2, 0.5, 0.7, 1.0, 1.0001, 2.0, 10.0):
        assert math.sqrt(max(0.0, with_cv(cv, 3.0).scv)) == pytest.approx(cv, abs=1e-9)
        assert with_cv(cv, 3.0).mean == 3.0
    assert Pareto(alpha=2.0).second_moment == math.inf
    assert law("bounded-pareto").name == "bounded_pareto"
    assert law("lognormal(cv=3)").scv == pytest.approx(9.0)
    assert law("pareto(alpha=3)", mean=2.0).mean == 2.0
