"""How long runs are, what decides it, and what they take of memory."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import pytest

from fastsim.queueing import make_spec, simulate
from fastsim.queueing.warmup import default_requests, wanted_requests
from fastsim.stats import run_length


@pytest.mark.small
@pytest.mark.parametrize(
    ("ps", "furthest"),
    [
        ((), 0.925),
        ((0.5,), 0.925),
        ((0.5, 0.9, 0.99), 0.99),
        ((0.999, 0.5), 0.999),
        ((0.5, 0.9995), 0.9995),
        ((0.25,), 0.925),
        ((0.001,), 0.999),
    ],
)
def test_the_mean_and_the_furthest_quantile_decide_the_length(ps, furthest) -> None:
    spec = make_spec(4, utilisation=0.8)
    assert default_requests(spec, ps) == run_length(furthest, spec.utilisation)


@pytest.mark.small
def test_more_is_never_less() -> None:
    """Asking for one quantile more, of any probability, shortens no run."""
    spec = make_spec(utilisation=0.6)
    for p in (1e-6, 0.01, 0.3, 0.5, 0.9, 0.991, 0.999999):
        assert default_requests(spec, (0.5, 0.9, p)) >= default_requests(spec, (0.5, 0.9))


def test_a_far_quantile_does_not_spoil_the_mean() -> None:
    found = simulate(1, utilisation=0.5, quantiles=(0.5, 0.999), level=0.9999)
    assert found.theory is not None
    assert found.theory.response is not None
    assert found.theory.response_mean is not None
    assert found.response.mean.contains(found.theory.response_mean)
    assert found.response.mean.relative_half_width < 0.05
    for p, interval in found.response.quantiles.items():
        assert interval.contains(found.theory.response[p])


def test_runs_shorter_than_wanted_are_said_to_be() -> None:
    few = simulate(1, utilisation=0.8, requests=2_000, replications=2)
    wanted = wanted_requests(few.spec, (0.5, 0.9, 0.99))
    assert any(f"runs of {wanted:,} requests are wanted" in note for note in few.notes)
    assert wanted_requests(few.spec, (0.99999,)) > default_requests(few.spec, (0.99999,)) == 15_000_000
    enough = simulate(1, utilisation=0.5, replications=2)
    assert enough.notes == ()


def test_replications_are_added_for_far_quantiles_too() -> None:
    asked: dict[str, Any] = {"utilisation": 0.5, "requests": 20_000, "rel_half_width": 0.05}
    near = simulate(1, quantiles=(0.5,), **asked)
    far = simulate(1, quantiles=(0.5, 0.999), **asked)
    assert far.reached
    assert far.replications > near.replications
    assert far.response.quantiles[0.999].relative_half_width <= 0.05 / 1.05


LEAN = {
    "blind": {"dispatcher": "random"},
    "shortest queue": {"dispatcher": "jsq"},
    "best of two": {"dispatcher": "jsq_d"},
    "old board": {"dispatcher": "jsq", "update": "periodic", "period": 2.0},
    "looking back": {"dispatcher": "jsq_d", "update": "continuous", "period": 2.0, "age": "exponential"},
    "own posts": {"dispatcher": "lwl_d", "update": "individual", "period": 2.0},
    "own counts": {"dispatcher": "jiq", "update": "own", "dispatchers": 3},
    "sharing": {"dispatcher": "jsq", "discipline": "ps"},
    "lengths": {"dispatcher": "jsq", "queue_lengths": True},
    "bursts": {"dispatcher": "round_robin", "arrivals": "modulated"},
}


def peak(servers: int = 4, **asked: Any) -> int:
    """Most bytes held at once."""
    tracemalloc.start()
    simulate(servers, utilisation=0.5, **asked)
    size = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return size


@pytest.mark.parametrize("name", LEAN)
def test_memory_is_flat_in_the_number_of_arrivals(name) -> None:
    """Four times the requests, pilots included, with 64 kB more; their response times alone are 3.8 MB."""
    asked = {"replications": 1, **LEAN[name]}
    peak(requests=1000, **asked)
    assert peak(requests=640_000, **asked) - peak(requests=160_000, **asked) <= 65_536


@pytest.mark.parametrize("name", LEAN)
def test_memory_of_a_run_is_free_before_the_next(name) -> None:
    """Twelve more runs of 5,000 servers, without the collector, take less than the arrays of one of them."""
    asked = {"requests": 500, "warmup": 10, **LEAN[name]}
    peak(5_000, replications=1, **asked)
    gc.disable()
    try:
        few, many = (peak(5_000, replications=n, **asked) for n in (3, 15))
    finally:
        gc.enable()
    assert many - few <= 5_000 * 8 * 2
