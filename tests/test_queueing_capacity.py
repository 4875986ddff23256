"""Capacities by formula are those at which a run sends some server more than it can do."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest

from fastsim.queueing import make_spec
from fastsim.queueing.capacity import capacity, known_capacity, offered_load, sent_loads

CASES = [
    ("random", {}),
    ("weighted_random", {}),
    ("round_robin", {}),
    ("sita", {}),
    ("sita", {"cutoffs": [0.2, 1.0, 2.0]}),
    ("jsq", {}),
    ("jsq_d", {}),
    ("jsq_d", {"d": 3, "replacement": False}),
    ("jsq_d", {"memory": True}),
    ("lwl", {}),
    ("lwl_d", {}),
    ("sed", {}),
    ("sed_d", {"replacement": False}),
    ("jiq", {}),
    ("central_queue", {}),
]
OLD = [{}, {"update": "periodic", "period": 5.0}, {"update": "own", "dispatchers": 3}]
UNEVEN = [4.0, 1.0, 1.0, 1.0]


def question(dispatcher, rate, speeds, **more):
    return make_spec(4, dispatcher, rate=rate, speeds=speeds, allow_unstable=True, **more)


@pytest.mark.parametrize(
    ("dispatcher", "more", "old"),
    [(*case, old) for case in CASES for old in OLD if case[0] != "central_queue" or not old],
)
@pytest.mark.parametrize("speeds", [[1.0] * 4, UNEVEN])
def test_some_server_is_overloaded_above_it_and_none_below(dispatcher, more, speeds, old):
    limit = capacity(question(dispatcher, 1.0, speeds, **more, **old))
    below, above = (
        sent_loads(question(dispatcher, f * limit, speeds, **more, **old), seed=1, requests=200_000).max()
        for f in (0.95, 1.05)
    )
    assert below < 1.01  # what looks at queues keeps slow servers as busy as it can
    assert above > 1.03
    assert offered_load(question(dispatcher, 2.0 * limit, speeds, **more, **old)) == pytest.approx(2.0)


@pytest.mark.parametrize("replacement", [True, False])
@pytest.mark.parametrize("d", [1, 2, 3])
def test_the_slowest_are_the_worst_of_all_sets(d, replacement):
    """By going through all sets of servers, and all samples that fall into them."""
    speeds = [0.3, 2.0, 0.5, 1.0, 3.0]
    spec = make_spec(
        5,
        "jsq_d",
        rate=0.1,
        speeds=speeds,
        d=d,
        replacement=replacement,
        allow_unstable=True,
        size="erlang(phases=2)",
    )
    rates = []
    for k in range(1, 6):
        for some in combinations(range(5), k):
            chance = (k / 5) ** d if replacement else math.comb(k, d) / math.comb(5, d)
            if chance:
                rates.append(sum(speeds[j] for j in some) / chance)
    assert known_capacity(spec) == pytest.approx(min(rates) / spec.size.mean)


def test_where_no_formula_is_known_it_is_measured_once():
    spec = question("jiq", 1.0, UNEVEN)
    assert known_capacity(spec) is None
    assert capacity(spec) == capacity(spec) < 0.9 * sum(UNEVEN)
    traced = make_spec(4, "jiq", arrivals=np.arange(50.0), speeds=UNEVEN, allow_unstable=True)
    assert capacity(traced) == pytest.approx(capacity(spec), rel=0.01)
