"""Whatever is registered works with whatever else is, and equals a twin in plain Python bit for bit."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from fastsim.queueing import ARRIVALS, DISPATCHERS, LAWS, blind, make_spec, run_once
from fastsim.queueing.collect import collect
from fastsim.queueing.dispatchers import AGES, DISCIPLINES, UPDATES
from fastsim.queueing.laws import Empirical
from fastsim.queueing.run import _alias_table
from fastsim.rng import stream
from fastsim.stats import QuantileHistogram
from tests.queueing_runs import (
    RULES,
    SEED,
    assert_same,
    assert_same_general,
    drawn,
    same_bits,
    twin_stream,
)
from tests.twins import queueing as twin
from tests.twins.histogram import fill

SERVERS, REQUESTS = 3, 40
SPEEDS = (1.0, 2.0, 0.5)
FAST = ("jsq", "jsq_d", "lwl", "central_queue")  # with kernels of their own where all is known, FCFS
BLIND = ("random", "weighted_random", "round_robin", "sita")
TIMES = np.cumsum(np.random.default_rng(SEED).random(REQUESTS))
MORE_ARRIVALS: dict[str, Any] = {"timestamps": TIMES}


def sizes_of(name: str) -> Any:
    return Empirical(np.array([0.2, 1.0, 3.0, 0.5])) if name == "empirical" else name


def arrivals_of(name: str) -> Any:
    return MORE_ARRIVALS.get(name, name)


def dispatch() -> list[tuple[str, str, str, str]]:
    """Dispatcher, discipline, update and age: all that mean something together."""
    found = []
    for name, discipline in itertools.product(DISPATCHERS, DISCIPLINES):
        if name == "central_queue" and discipline != "fcfs":
            continue
        reads = DISPATCHERS[name].score is not None and name != "central_queue"
        for update in UPDATES if reads else ("live",):
            aged = update in ("continuous", "individual")
            found += [(name, discipline, update, age) for age in (AGES if aged else ("constant",))]
    return found


def asked(name: str, discipline: str, update: str, age: str, **more: Any) -> Any:
    return make_spec(
        SERVERS,
        name,
        utilisation=0.9,
        speeds=SPEEDS,
        discipline=discipline,
        cutoffs=(0.5, 1.5) if name == "sita" else None,
        update=update,
        age=age,
        period=0.0 if update in ("live", "own") else 0.8,
        dispatchers=2,
        allow_unstable=True,
        **more,
    )


def test_every_dispatcher_has_a_twin() -> None:
    assert {*RULES, *BLIND, "central_queue"} == set(DISPATCHERS)


@pytest.mark.parametrize(("name", "discipline", "update", "age"), dispatch())
def test_any_sizes_and_any_arrivals(name, discipline, update, age) -> None:
    for size, arrivals in itertools.product(LAWS, [*ARRIVALS, *MORE_ARRIVALS]):
        spec = asked(name, discipline, update, age, size=sizes_of(size), arrivals=arrivals_of(arrivals))
        assert_twin(spec)


def assert_twin(spec: Any) -> None:
    """Targets, waits and times of service, and under processor sharing the departures."""
    name, pace, parts = spec.dispatcher.name, (1.0 / spec.speeds).tolist(), (16, REQUESTS - 16)
    at, sizes, who = drawn(spec, 0, REQUESTS)
    routing = twin_stream(0, "routing")
    if name in BLIND:
        targets = their_targets(spec, routing, sizes, who)
        if spec.discipline == "ps":
            assert_same_general(spec, 0, "given", "count", parts, targets)
        else:
            assert_same(spec, 0, REQUESTS, twin.given_targets(targets, at, sizes, pace))
    elif spec.discipline == "ps" or spec.update != "live" or name not in FAST:
        assert_same_general(spec, 0, *RULES[name], parts)
    elif name == "jsq":
        assert_same(spec, 0, REQUESTS, twin.shortest_queue(routing, at, sizes, pace))
    elif name == "jsq_d":
        assert_same(spec, 0, REQUESTS, twin.shortest_of_d(routing, at, sizes, pace, spec.d))
    else:
        assert_same(spec, 0, REQUESTS, twin.least_work(at, sizes, pace))


def their_targets(spec: Any, routing: Any, sizes: list[float], who: list[int]) -> list[int]:
    if spec.dispatcher.name == "random":
        return [routing.below(spec.servers) for _ in sizes]
    if spec.dispatcher.name == "weighted_random":
        keep, alias = _alias_table(spec.speeds)
        return twin.weighted_targets(routing, len(sizes), keep.tolist(), alias.tolist())
    if spec.dispatcher.name == "round_robin":
        return twin.turns(who, spec.servers)
    return twin.intervals(sizes, spec.cutoffs.tolist())


@pytest.mark.parametrize(("name", "discipline", "update", "age"), dispatch())
def test_what_a_run_reports_holds_together(name, discipline, update, age) -> None:
    """Order of quantiles, fractions, queue lengths seen beside Little's law, and that seeds decide."""
    spec = make_spec(
        SERVERS,
        name,
        utilisation=0.7,
        discipline=discipline,
        update=update,
        age=age,
        period=0.0 if update in ("live", "own") else 0.8,
    )
    one, two, other = (
        run_once(spec, seed, 0, warmup=100, requests=1_500, queue_lengths=True) for seed in (1, 1, 2)
    )
    assert one.values == two.values
    assert one.response == two.response
    assert one.values != other.values
    v = one.values
    assert all(math.isfinite(value) for value in v.values())
    assert one.response[0.5] <= one.response[0.9] <= one.response[0.99]
    assert v["response_mean"] == pytest.approx(v["wait_mean"] + v["service_mean"], rel=1e-12)
    assert 0.0 <= v["no_wait"] <= 1.0
    assert one.lengths[0] == pytest.approx(v["idle"], abs=0.04)
    assert one.lengths.sum() == pytest.approx(1.0, rel=1e-12)
    # seen at 200 to 700 times of each of three servers: loosely what the requests' times say
    assert one.lengths @ np.arange(one.lengths.size) == pytest.approx(v["queue_length"], rel=0.25)


@pytest.mark.parametrize(("name", "discipline", "update", "age"), dispatch())
def test_idle_servers_of_an_overload(name, discipline, update, age) -> None:
    """Some servers are overloaded and others idle: the idle fraction is what is seen, and not negative."""
    spec = asked(name, discipline, update, age)
    run = run_once(spec, 1, 0, warmup=100, requests=1_500, queue_lengths=True)
    assert -1e-12 <= run.values["idle"] <= 1.0
    assert run.lengths[0] == pytest.approx(run.values["idle"], abs=0.04)


@pytest.mark.small
def test_alias_table_has_the_weights() -> None:
    for weights in ([1.0], [1.0, 2.0, 5.0, 0.5], [3.0] * 7, [1e-9, 1.0, 1e9]):
        keep, alias = _alias_table(np.array(weights))
        share = keep / keep.size
        np.add.at(share, alias, (1.0 - keep) / keep.size)
        assert share == pytest.approx(np.array(weights) / sum(weights), rel=1e-12, abs=1e-16)


@pytest.mark.small
@pytest.mark.parametrize("speeds", [(1.0,), (1.0, 2.0, 5.0, 0.5), (1.0, 1.0)])
def test_weighted_targets(speeds) -> None:
    keep, alias = _alias_table(np.array(speeds))
    out = np.empty(500, np.int64)
    blind.weighted_targets(stream(SEED, 9, "routing"), out, keep, alias)
    theirs = twin.weighted_targets(twin_stream(9, "routing"), 500, keep.tolist(), alias.tolist())
    assert out.tolist() == theirs


@pytest.mark.small
@pytest.mark.parametrize("n", [0, 1, 3, 4, 5, 203])
def test_collecting(n) -> None:
    rng = np.random.default_rng(n)
    waits, services = np.where(rng.random(n) < 0.3, 0.0, rng.exponential(3.0, n)), rng.exponential(1.0, n)
    responses, waited = QuantileHistogram(0.01), QuantileHistogram(0.01)
    sums = np.zeros(3)
    collect(waits, services, responses.counts, waited.counts, responses.bits, sums)
    same_bits(sums, twin.collected(waits.tolist(), services.tolist()))
    for ours, values in ((responses, waits + services), (waited, waits)):
        assert {int(k): int(ours.counts[k]) for k in np.flatnonzero(ours.counts)} == fill(
            ours.bits, values.tolist()
        )
