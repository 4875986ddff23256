"""Simulated queues against closed forms, references, conservation laws and one another.

Intervals are at level 0.999, so that each comparison with a true value fails one seed in a thousand; seeds
are fixed. Longer runs, at utilisations up to 0.99, are in tests/study/queueing.py.
"""

from __future__ import annotations

import itertools
import json
import math
from typing import Any

import numpy as np
import pytest

from fastsim.errors import InputError
from fastsim.queueing import DISPATCHERS, answer, make_spec, run_once, simulate
from fastsim.queueing.run import Run
from fastsim.queueing.theory import MMc, Supermarket
from fastsim.queueing.warmup import least_warmup
from fastsim.rng import stream
from fastsim.stats import paired_difference, quantile

LEVEL = 0.9999
RUNS = 40

# question, requests a run, widest relative half-width allowed
EXACT = [
    ({"utilisation": 0.5}, 300_000, 0.01),
    ({"utilisation": 0.8}, 1_800_000, 0.01),
    ({"utilisation": 0.9}, 1_500_000, 0.025),
    ({"servers": 16, "utilisation": 0.9}, 1_500_000, 0.025),
    ({"servers": 4, "speeds": (2.0, 2.0, 2.0, 2.0), "utilisation": 0.5}, 300_000, 0.01),
    ({"servers": 16, "utilisation": 0.5, "dispatcher": "lwl"}, 50_000, 0.01),
    ({"servers": 16, "utilisation": 0.9, "dispatcher": "central_queue"}, 500_000, 0.012),
    ({"servers": 16, "utilisation": 0.8, "dispatcher": "round_robin"}, 600_000, 0.015),
    ({"utilisation": 0.8, "size": "deterministic"}, 800_000, 0.01),
    ({"utilisation": 0.7, "size": "hyperexponential(cv=2)"}, 1_500_000, 0.01),
    ({"utilisation": 0.6, "size": "bounded_pareto(alpha=1.5, ratio=30)"}, 800_000, 0.01),
    ({"utilisation": 0.7, "size": "lognormal(cv=1.5)", "discipline": "ps"}, 300_000, 0.01),
    ({"servers": 8, "utilisation": 0.7, "size": "weibull(shape=0.6)", "discipline": "ps"}, 300_000, 0.015),
    ({"utilisation": 0.7, "size": "pareto(alpha=1.8)", "discipline": "ps"}, 300_000, 0.05),
]


@pytest.mark.parametrize(("question", "requests", "width"), EXACT)
def test_closed_forms(question, requests, width) -> None:
    spec = make_spec(**question)
    result = answer(
        spec,
        requests=requests,
        replications=RUNS,
        warmup=5 * least_warmup(spec),
        level=LEVEL,
        quantiles=(0.5, 0.9, 0.99),
        seed=1,
    )
    theory = result.theory
    assert theory is not None
    assert theory.kind == "exact"
    assert theory.response_mean is not None
    assert result.response.mean.contains(theory.response_mean)
    assert result.response.mean.relative_half_width <= width
    for p, exact in (theory.response or {}).items():
        assert result.response.quantiles[p].contains(exact)
        assert result.response.quantiles[p].relative_half_width <= width
    if result.wait is not None and theory.wait_mean is not None:
        assert result.wait.mean.contains(theory.wait_mean)
        for p, exact in (theory.wait or {}).items():
            if exact > 0.0:
                assert result.wait.quantiles[p].contains(exact)
    assert result.idle_probability.contains(1.0 - spec.utilisation)


def test_no_wait_of_a_central_queue() -> None:
    result = simulate(8, "central_queue", utilisation=0.8, requests=200_000, replications=RUNS, level=LEVEL)
    queue = MMc(6.4, 1.0, 8)
    assert result.no_wait is not None
    assert result.no_wait.contains(1.0 - queue.wait_probability)
    assert result.queue_length.contains(queue.queue_length_mean / 8.0)


# mean time in system of 16 servers at utilisation 0.9 with a board refreshed every T, from an independent
# simulation whose standard errors are stated as 0.3 to 1.3 % where they are: 1 % is taken
OLD = {
    0.0: (2.905, 2.348, 1.566),
    1.0: (3.230, 2.838, 4.664),
    4.0: (3.992, 4.124, 13.20),
    16.0: (6.524, 8.688, 47.5),
}


@pytest.mark.parametrize("period", OLD)
def test_old_information(period) -> None:
    """The two estimates within 2.5 standard errors of each other: 1 in 80 a number."""
    for d, reference in zip((2, 3, None), OLD[period], strict=True):
        result = simulate(
            16,
            "jsq_d" if d else "jsq",
            utilisation=0.9,
            update="periodic",
            period=period,
            requests=150_000,
            replications=10,
            warmup=int(14.4 * (200.0 + 10.0 * period)),
            seed=2,
            d=d,
        )
        mean = result.response.mean
        error = math.hypot(mean.half_width / 2.26, 0.01 * reference)
        assert abs(mean.value - reference) <= 2.5 * error
        assert mean.relative_half_width <= 0.04


@pytest.mark.parametrize("update", ["periodic", "continuous", "individual"])
def test_random_does_not_care_for_age(update) -> None:
    kwargs: dict[str, Any] = {"utilisation": 0.9, "requests": 20_000, "replications": 3, "warmup": 1000}
    fresh = simulate(16, "random", **kwargs)
    old = simulate(16, "random", update=update, period=50.0, **kwargs)
    np.testing.assert_array_equal(fresh.runs["response_mean"], old.runs["response_mean"])


def test_age_models_agree_at_their_limits() -> None:
    """Very young information is as good as live, very old information much worse."""
    kwargs: dict[str, Any] = {"utilisation": 0.8, "requests": 10_000, "replications": 10, "warmup": 1000}
    live = simulate(8, "jsq", **kwargs).response.mean
    for update in ("periodic", "continuous", "individual"):
        for age in ("constant", "uniform", "exponential"):
            young = simulate(8, "jsq", update=update, period=0.01, age=age, **kwargs).response.mean
            assert abs(young.value - live.value) < 3.0 * (young.half_width + live.half_width) / 2.26
            old = simulate(8, "jsq", update=update, period=20.0, age=age, **kwargs).response.mean
            assert old.value > 2.0 * live.value


def test_own_counts_of_one_dispatcher_are_the_truth() -> None:
    """To the bit for scores that both keep by the same tree; several dispatchers know less and do worse."""
    kwargs: dict[str, Any] = {"utilisation": 0.9, "requests": 50_000, "replications": 4, "warmup": 2000}
    for name in ("sed", "jsq_d", "jiq"):
        same: dict[str, Any] = {"discipline": "ps"} if name == "jsq_d" else {}
        live = simulate(8, name, **same, **kwargs).runs["response_mean"]
        own = simulate(8, name, update="own", **same, **kwargs).runs["response_mean"]
        np.testing.assert_array_equal(live, own)
    means = [
        simulate(8, "jsq", update="own", dispatchers=k, **kwargs).response.mean.value for k in (1, 2, 8, 64)
    ]
    assert means == sorted(means)
    assert means[-1] < 10.0


def test_fast_and_general_kernels_agree() -> None:
    """By two kernels that break ties differently: means within 4 paired standard errors."""
    kwargs: dict[str, Any] = {
        "utilisation": 0.9,
        "requests": 200_000,
        "replications": 20,
        "warmup": 3000,
        "seed": 4,
    }
    fast = simulate(16, "jsq", **kwargs)
    general = simulate(16, "jsq", update="own", **kwargs)
    difference = paired_difference(fast.runs["response_mean"], general.runs["response_mean"])
    assert abs(difference.value) <= 4.0 / 2.09 * difference.half_width
    assert difference.half_width < 0.005
    no_memory = simulate(16, "jsq_d", **kwargs)
    by_board = simulate(16, "jsq_d", update="own", **kwargs)
    np.testing.assert_array_equal(no_memory.runs["response_mean"], by_board.runs["response_mean"])


def test_order_of_policies() -> None:
    """More information waits less, on common random numbers."""
    kwargs: dict[str, Any] = {"utilisation": 0.9, "requests": 50_000, "replications": 10, "warmup": 3000}
    orders: list[tuple[str, dict[str, Any]]] = [
        ("central_queue", {}),
        ("jsq", {}),
        ("jsq_d", {"memory": True}),
        ("jsq_d", {}),
        ("round_robin", {}),
        ("random", {}),
    ]
    runs = [simulate(16, name, **more, **kwargs).runs["response_mean"] for name, more in orders]
    for better, worse in itertools.pairwise(runs):
        assert paired_difference(better, worse).high < 0.0


def test_unequal_speeds() -> None:
    """Shortest expected delay beats shortest queue where servers differ; least work is one queue."""
    kwargs: dict[str, Any] = {
        "utilisation": 0.7,
        "speeds": (8.0, 1.0, 1.0),
        "requests": 50_000,
        "replications": 10,
    }
    sed, jsq, weighted, lwl, one = (
        simulate(3, name, **kwargs).runs["response_mean"]
        for name in ("sed", "jsq", "weighted_random", "lwl", "central_queue")
    )
    assert paired_difference(sed, jsq).high < 0.0
    assert paired_difference(jsq, weighted).high < 0.0
    np.testing.assert_array_equal(lwl, one)


def test_size_intervals() -> None:
    """Every server gets an equal load, and heavy tails gain by it."""
    spec = make_spec(4, "sita", utilisation=0.8, size="bounded_pareto(alpha=1.1, ratio=10000)")
    assert spec.loads is not None
    np.testing.assert_allclose(spec.loads, 0.8, rtol=1e-9)
    run = Run(spec, 0, 0)
    work = np.zeros(4)
    for now in run.stretches(2_000_000):
        work += np.bincount(now.target, now.work, minlength=4)
    np.testing.assert_allclose(work / work.sum(), 0.25, atol=0.02)
    (now,) = Run(make_spec(2, "sita", rate=0.1, size="deterministic", cutoffs=(1.0,)), 0, 0).stretches(10)
    assert set(now.target.tolist()) == {0}  # intervals are closed above
    uneven = make_spec(3, "sita", utilisation=0.6, size="lognormal(cv=3)", speeds=(1.0, 2.0, 4.0))
    assert uneven.loads is not None
    np.testing.assert_allclose(uneven.loads, 0.6, rtol=1e-9)
    runs: dict[str, Any] = {"requests": 500_000, "replications": 5, "warmup": 10_000}
    size = "bounded_pareto(alpha=1.1, ratio=1000)"
    sita = simulate(4, "sita", utilisation=0.8, size=size, **runs).response.mean
    random = simulate(4, "random", utilisation=0.8, size=size, **runs).response.mean
    assert sita.high < random.low


def test_blind_targets() -> None:
    """Shares within 4.5 standard errors; turns in order, dispatcher by dispatcher."""
    n = 200_000
    for name, speeds in (("random", None), ("weighted_random", (1.0, 2.0, 5.0, 0.5))):
        spec = make_spec(4, name, utilisation=0.5, speeds=speeds)
        seen = np.zeros(4)
        for now in Run(spec, 1, 0).stretches(n):
            seen += np.bincount(now.target, minlength=4)
        share = np.full(4, 0.25) if speeds is None else np.array(speeds) / 8.5
        assert (np.abs(seen / n - share) <= 4.5 * np.sqrt(share * (1 - share) / n)).all()
    spec = make_spec(5, "round_robin", utilisation=0.5, dispatchers=3)
    (now,) = Run(spec, 1, 0).stretches(2000)
    for k in range(3):
        mine = now.target[now.dispatcher == k]
        np.testing.assert_array_equal(mine, np.arange(mine.size) % 5)


@pytest.mark.parametrize("name", sorted(set(DISPATCHERS) - {"central_queue"}))
@pytest.mark.parametrize("discipline", ["fcfs", "ps"])
def test_conservation(name, discipline) -> None:
    """Each request leaves once with its own work done, no sooner than that takes; Little's law on counts."""
    spec = make_spec(3, name, utilisation=0.8, size="lognormal(cv=1.5)", discipline=discipline)
    sizes = np.empty(3000)
    spec.size.fill(stream(5, 0, "sizes"), sizes)
    run = Run(spec, 5, 0)
    gone = []
    for now in run.stretches(3000):
        np.testing.assert_array_equal(now.work, sizes)
        assert now.wait.min() >= 0.0
        assert set(now.target.tolist()) <= {0, 1, 2}
        if discipline == "ps":
            gone += run.departed()[0].tolist()
    if discipline == "ps":
        while run.let_one_go():
            serial, delay, _ = run.departed()
            gone += serial.tolist()
            assert (delay >= 0.0).all()
        assert sorted(gone) == list(range(3000))
    result = run_once(spec, 5, 0, warmup=1000, requests=100_000, queue_lengths=True)
    by_looking = float(result.lengths @ np.arange(result.lengths.size))
    assert by_looking == pytest.approx(result.values["queue_length"], rel=0.03)
    assert result.lengths.sum() == pytest.approx(1.0)
    assert result.lengths[0] == pytest.approx(result.values["idle"], abs=0.01)


def test_supermarket_tails() -> None:
    """Fractions of servers by length against the fixed point, for N = 2,000.

    They are powers of the load, which is known to sqrt(2 / requests): 4.5 of these (1 in 150,000) and 0.3 %
    for the number of servers are allowed.
    """
    limit = Supermarket(0.9, 2)
    result = simulate(
        2_000,
        "jsq_d",
        utilisation=0.9,
        requests=2_000_000,
        replications=3,
        warmup=200_000,
        queue_lengths=True,
    )
    assert result.lengths is not None
    tails = 1.0 - np.concatenate([[0.0], np.cumsum(result.lengths)])
    for length in range(1, 5):
        error = 4.5 * (2**length - 1) * math.sqrt(2.0 / 6e6) + 0.003
        assert tails[length] == pytest.approx(limit.tail(length), rel=error)
    assert result.response.mean.value == pytest.approx(limit.response_mean, rel=0.01)
    assert result.theory is not None
    assert result.theory.kind == "limit"
    assert result.length_quantile(0.5) == 2  # P(at most 2) = 1 - 0.478


def test_periodic_update_of_many_servers() -> None:
    """2,000 servers against the fluid limit, whose own error is O(1 / N) and more for all queues."""
    for name, period in (("jsq_d", 4.0), ("jsq", 1.0), ("jsq", 4.0)):
        result = simulate(
            2000,
            name,
            utilisation=0.9,
            update="periodic",
            period=period,
            requests=800_000,
            replications=3,
            warmup=200_000,
        )
        assert result.theory is not None
        assert result.response.mean.value == pytest.approx(result.theory.response_mean, rel=0.03)


def test_arrival_processes() -> None:
    """Burstier arrivals wait longer; a trace of Poisson times is Poisson; a trace is used up and no more."""
    kwargs: dict[str, Any] = {"utilisation": 0.8, "requests": 100_000, "replications": 8, "warmup": 2000}
    waits = [
        simulate(2, "lwl", arrivals=arrivals, **kwargs).response.mean
        for arrivals in ("renewal(cv=0)", "renewal(cv=0.5)", "poisson", "renewal(cv=2)", "modulated")
    ]
    assert [w.value for w in waits] == sorted(w.value for w in waits)
    again = simulate(2, "lwl", arrivals="renewal(gap='exponential')", **kwargs).response.mean
    assert abs(again.value - waits[2].value) <= 3.0 * (again.half_width + waits[2].half_width) / 2.36
    times = np.cumsum(np.random.default_rng(0).exponential(size=20_000))
    trace = simulate(2, "lwl", arrivals=times, utilisation=0.8, replications=4)
    assert trace.requests + trace.warmup == 20_000
    np.testing.assert_allclose(trace.spec.utilisation, 0.8)
    raw = make_spec(4, arrivals=times)
    assert raw.arrivals.rate == pytest.approx(1.0, rel=0.05)
    with pytest.raises(InputError, match="20000 arrivals"):
        simulate(2, arrivals=times, utilisation=0.5, requests=30_000)


def test_empirical_sizes_are_scaled_or_kept() -> None:
    sizes = np.array([1.0, 1.0, 4.0])
    kept = make_spec(1, utilisation=0.5, size=sizes)
    assert kept.size.mean == pytest.approx(2.0)
    assert kept.arrivals.rate == pytest.approx(0.25)


def test_common_random_numbers() -> None:
    """Arrivals and sizes do not depend on the dispatcher, the age or the discipline."""
    runs = []
    cases: list[tuple[str, dict[str, Any]]] = [
        ("random", {}),
        ("jsq", {}),
        ("jsq_d", {"update": "periodic", "period": 2.0}),
    ]
    for name, more in cases:
        for discipline in ("fcfs", "ps"):
            spec = make_spec(4, name, utilisation=0.9, discipline=discipline, **more)
            (now,) = Run(spec, 3, 1).stretches(1000)
            runs.append(np.concatenate([now.at, now.work]))
    for other in runs[1:]:
        np.testing.assert_array_equal(runs[0], other)
    kwargs: dict[str, Any] = {"utilisation": 0.9, "requests": 50_000, "replications": 10, "warmup": 1000}
    jsq, lwl = (simulate(16, name, **kwargs).runs["response_mean"] for name in ("jsq", "lwl"))
    assert paired_difference(jsq, lwl).vrf > 5.0


def test_same_bits_whatever_the_workers_and_stretches() -> None:
    kwargs: dict[str, Any] = {
        "utilisation": 0.9,
        "requests": 20_000,
        "replications": 6,
        "rel_half_width": 0.05,
    }
    one, two = (simulate(8, "jsq_d", workers=workers, **kwargs) for workers in (1, 2))
    assert one.replications == two.replications
    for name, values in one.runs.items():
        np.testing.assert_array_equal(values, two.runs[name])
    assert one.warmup == two.warmup


def test_quantiles_of_kept_samples_are_exact() -> None:
    kwargs: dict[str, Any] = {"utilisation": 0.9, "requests": 30_000, "replications": 2, "warmup": 500}
    exact = simulate(4, "jsq", keep_samples=True, **kwargs)
    histogram = simulate(4, "jsq", **kwargs)
    assert exact.samples is not None
    assert [s.size for s in exact.samples] == [30_000, 30_000]
    for r, samples in enumerate(exact.samples):
        assert exact.runs["response_p99"][r] == quantile(samples, 0.99)
        assert histogram.runs["response_p99"][r] == pytest.approx(quantile(samples, 0.99), rel=0.002)
        assert histogram.runs["response_mean"][r] == pytest.approx(samples.mean(), rel=1e-12)
    assert histogram.samples is None


def test_stopping_rule() -> None:
    kwargs: dict[str, Any] = {"utilisation": 0.8, "requests": 20_000, "quantiles": (0.5, 0.99)}
    result = simulate(1, rel_half_width=0.03, **kwargs)
    assert result.reached
    assert result.replications > 10
    for interval in (result.response.mean, result.response.quantiles[0.99]):
        assert interval.relative_half_width <= 0.03 / 1.03
    capped = simulate(1, rel_half_width=0.001, max_replications=12, **kwargs)
    assert capped.reached is False
    assert capped.replications == 12


def test_overload_is_said_and_has_no_quantiles() -> None:
    result = simulate(2, "jsq", utilisation=1.2, allow_unstable=True, requests=20_000, replications=3)
    assert not result.stable
    assert result.response.quantiles == {}
    assert result.theory is None
    assert any("capacity" in note for note in result.notes)
    # two choices send the slow servers more than they can do, though all servers together could
    uneven = {"utilisation": 0.9, "speeds": [10.0, *[0.1] * 9], "requests": 50_000}
    with pytest.raises(InputError, match=r"jsq_d keeps up with less than 1\.11111 arrivals"):
        simulate(10, "jsq_d", **uneven)
    starved = simulate(10, "jsq_d", allow_unstable=True, **uneven)
    assert not starved.stable
    assert starved.offered_load == pytest.approx(0.9 * 10.9 * 0.81 / 0.9)
    fine = simulate(10, "sed", utilisation=0.9, speeds=[10.0, *[0.1] * 9], requests=50_000)
    assert fine.stable


def test_infinite_variance_is_noted() -> None:
    result = simulate(1, utilisation=0.5, size="pareto(alpha=1.5)", requests=10_000, replications=2)
    assert result.theory is None
    assert any("infinite variance" in note for note in result.notes)


def test_plain_numbers() -> None:
    result = simulate(2, utilisation=0.5, requests=2000, replications=2, warmup=10)
    row = json.loads(json.dumps(result.to_dict()))
    assert row["theory"]["model"] == "M/M/1"
    assert row["response"]["p99"]["low"] < row["response"]["p99"]["value"]
    one = simulate(2, utilisation=0.5, requests=2000, replications=1, warmup=10).to_dict()
    assert one["response"]["mean"]["low"] is None  # nothing is known of the spread
    json.dumps(one, allow_nan=False)
