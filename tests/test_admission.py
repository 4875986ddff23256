"""A limit in front of a cluster's router: refused exactly while too many others are in flight."""

from __future__ import annotations

import numpy as np
import pytest

from fastsim import Cluster, simulate
from fastsim.cluster.step_time import StepTime
from fastsim.errors import InputError
from fastsim.workloads import make

pytestmark = pytest.mark.small

SMALL = Cluster(2, kv_tok=4096, max_batch_tok=512, max_seqs=8, step_time=StepTime.linear(0.01, 1e-4, 1e-3))


def requests():
    return make("unique", requests=250, rate_rps=12.0, prompt_tok=80.0, output_tok=25.0, output_cv=0.8)


def by_counting(result, limits, replicas):
    """Replay the instants of a run: who would have been refused, counting those in flight one by one."""
    columns = result.columns
    refused = []
    for i, (arrival, limit) in enumerate(zip(columns["arrival_s"], limits, strict=True)):
        in_flight = sum(1 for j in range(i) if columns["replica"][j] >= 0 and columns["done_s"][j] > arrival)
        refused.append(in_flight > limit * replicas)
    return refused


@pytest.mark.parametrize("router", ["round_robin", "least_loaded", "cache_aware_guard"])
@pytest.mark.parametrize("most_load", [0.0, 0.5, 2.0])
def test_refused_exactly_while_too_many_are_in_flight(router, most_load):
    result = simulate(requests(), SMALL, router, most_load=most_load)
    refused = (result.columns["replica"] < 0).tolist()
    assert refused == by_counting(result, [most_load] * 250, 2)
    assert any(refused)
    assert not all(refused)


def test_every_request_may_have_a_limit_of_its_own():
    limits = np.random.default_rng(3).choice([0.0, 1.0, np.inf], 250)
    result = simulate(requests(), SMALL, "power_of_two", most_load=limits)
    refused = result.columns["replica"] < 0
    assert refused.tolist() == by_counting(result, limits, 2)
    assert not refused[np.isinf(limits)].any()


def test_without_a_limit_nothing_changes():
    free = simulate(requests(), SMALL, "random").columns
    limited = simulate(requests(), SMALL, "random", most_load=np.inf).columns
    for name, column in free.items():
        np.testing.assert_array_equal(limited[name], column)


def test_routers_go_by_what_they_see():
    """With a view that never comes, nobody is seen in flight, so nobody is refused."""
    result = simulate(requests(), SMALL, "least_loaded", view="delayed(1000)", most_load=0.0)
    assert (result.columns["replica"] >= 0).all()


@pytest.mark.parametrize("most_load", [-1.0, np.nan, [1.0, 2.0]])
def test_odd_limits_are_refused(most_load):
    with pytest.raises(InputError, match=r"most_load = .* is not allowed; it must be 0 or more, one number"):
        simulate(requests(), SMALL, most_load=most_load)
