"""Queues against their twins in plain Python, bit for bit on the same streams."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastsim.queueing import station as stations
from fastsim.queueing.run import Run
from fastsim.queueing.spec import make_spec
from tests.queueing_runs import (
    RULES,
    SEED,
    SIZES,
    assert_same,
    assert_same_general,
    drawn,
    ours,
    question,
    same_bits,
    same_run,
    speeds_of,
    twin_stream,
)
from tests.twins import queueing as twin
from tests.twins.queueing_general import General, Question

fast_cases = {
    "servers": st.integers(1, 24),
    "load": st.sampled_from([0.3, 0.9, 1.1]),
    "size": st.sampled_from(SIZES),
    "uneven": speeds_of,
    "replicate": st.integers(0, 1000),
}


@pytest.mark.small
@given(**fast_cases)
@same_run
def test_shortest_queue(servers, load, size, uneven, replicate) -> None:
    spec = question(servers, load, size, uneven, dispatcher="jsq")
    at, sizes, _ = drawn(spec, replicate, 300)
    pace = (1.0 / spec.speeds).tolist()
    assert_same(spec, replicate, 300, twin.shortest_queue(twin_stream(replicate, "routing"), at, sizes, pace))


@pytest.mark.small
@given(**fast_cases, d=st.integers(1, 4), replacement=st.booleans())
@same_run
def test_shortest_of_d(servers, load, size, uneven, replicate, d, replacement) -> None:
    d = min(d, servers)
    spec = question(servers, load, size, uneven, dispatcher="jsq_d", d=d, replacement=replacement)
    at, sizes, _ = drawn(spec, replicate, 300)
    pace, deck = (1.0 / spec.speeds).tolist(), None if replacement else list(range(servers))
    theirs = twin.shortest_of_d(twin_stream(replicate, "routing"), at, sizes, pace, d, deck)
    assert_same(spec, replicate, 300, theirs)


@pytest.mark.small
@given(**fast_cases)
@same_run
def test_least_work(servers, load, size, uneven, replicate) -> None:
    spec = question(servers, load, size, uneven, dispatcher="lwl")
    at, sizes, _ = drawn(spec, replicate, 300)
    assert_same(spec, replicate, 300, twin.least_work(at, sizes, (1.0 / spec.speeds).tolist()))


@pytest.mark.small
@given(**fast_cases, name=st.sampled_from(["random", "weighted_random", "round_robin", "sita"]))
@same_run
def test_blind(servers, load, size, uneven, replicate, name) -> None:
    """Targets are checked in test_queueing_simulate; here that they are served as given."""
    more = {"cutoffs": np.linspace(0.2, 3.0, servers - 1)} if name == "sita" else {}
    spec = question(servers, load, size, uneven, dispatcher=name, **more)
    at, sizes, _ = drawn(spec, replicate, 300)
    targets, waits, services, _ = ours(spec, replicate, 300)
    theirs = twin.given_targets(targets, at, sizes, (1.0 / spec.speeds).tolist())
    same_bits(waits, [wait for _, wait, _ in theirs])
    same_bits(services, [service for _, _, service in theirs])


# those of `live` have twins of their own above
FAST = {("fcfs", "jsq", False), ("fcfs", "jsq_d", False), ("fcfs", "lwl", False)}


@pytest.mark.small
@given(
    servers=st.integers(1, 12),
    load=st.sampled_from([0.4, 0.9, 1.1]),
    size=st.sampled_from(SIZES),
    uneven=speeds_of,
    replicate=st.integers(0, 1000),
    discipline=st.sampled_from(["fcfs", "ps"]),
    name=st.sampled_from(sorted(RULES)),
    update=st.sampled_from(["live", "periodic", "individual", "continuous", "own"]),
    age=st.sampled_from(["constant", "uniform", "exponential"]),
    d=st.integers(1, 3),
    replacement=st.booleans(),
    memory=st.booleans(),
    add_own=st.booleans(),
    dispatchers=st.integers(1, 3),
)
@settings(max_examples=500, deadline=None, derandomize=True)
def test_general(
    servers,
    load,
    size,
    uneven,
    replicate,
    discipline,
    name,
    update,
    age,
    d,
    replacement,
    memory,
    add_own,
    dispatchers,
) -> None:
    rule, score = RULES[name]
    d, memory = (min(d, servers), memory) if rule == "sample" else (1, False)
    replacement = replacement or rule != "sample"
    add_own = add_own and update in ("periodic", "individual")
    if update == "live" and (discipline, name, memory) in FAST:
        memory = name == "jsq_d"
        if not memory:
            discipline = "ps"
    period = 0.7 if update in ("periodic", "individual", "continuous") else 0.0
    spec = question(
        servers,
        load,
        size,
        uneven,
        dispatcher=name,
        discipline=discipline,
        d=d if rule == "sample" else None,
        replacement=replacement,
        memory=memory,
        update=update,
        period=period,
        age=age,
        add_own=add_own,
        dispatchers=dispatchers,
    )
    assert_same_general(spec, replicate, rule, score)


LATTICE = np.sort(np.random.default_rng(SEED).integers(0, 60, 400)) / 2.0


def on_a_lattice(servers: int, dispatcher: str, **more):
    """Arrivals, services and refreshes at multiples of one half, so that most events have company."""
    rate = (LATTICE.size - 1) / float(LATTICE[-1] - LATTICE[0])  # its own, hence not stretched
    size = f"deterministic(mean={servers / 16.0})"
    return make_spec(servers, dispatcher, arrivals=LATTICE, rate=rate, size=size, allow_unstable=True, **more)


@pytest.mark.small
@pytest.mark.parametrize("servers", [2, 8, 24])
def test_events_at_the_same_time(servers) -> None:
    """Departures before refreshes before arrivals, and of departures those of earlier arrivals first."""
    for name in ("jsq", "jsq_d", "lwl"):
        spec = on_a_lattice(servers, name)
        at, sizes, _ = drawn(spec, 0, 400)
        pace, routing = (1.0 / spec.speeds).tolist(), twin_stream(0, "routing")
        theirs = {
            "jsq": lambda: twin.shortest_queue(routing, at, sizes, pace),  # noqa: B023 - called at once
            "jsq_d": lambda: twin.shortest_of_d(routing, at, sizes, pace, 2),  # noqa: B023
            "lwl": lambda: twin.least_work(at, sizes, pace),  # noqa: B023
        }[name]()
        assert_same(spec, 0, 400, theirs)
    for update, name, discipline in itertools.product(
        ("periodic", "individual", "continuous", "own"), ("jsq", "jsq_d", "lwl", "jiq"), ("fcfs", "ps")
    ):
        spec = on_a_lattice(
            servers,
            name,
            discipline=discipline,
            update=update,
            period=0.0 if update == "own" else 0.5,
            dispatchers=2,
        )
        assert_same_general(spec, 0, *RULES[name])


@pytest.mark.small
@given(servers=st.integers(1, 6), size=st.sampled_from(SIZES), replicate=st.integers(0, 1000))
@same_run
def test_sharing_blindly(servers, size, replicate) -> None:
    spec = question(servers, 0.9, size, None, dispatcher="round_robin", discipline="ps")
    at, sizes, who = drawn(spec, replicate, 200)
    plain = General(
        Question([1.0] * servers, True, "given"), twin_stream(0, "routing"), twin_stream(0, "updates")
    )
    plain.serve(at, sizes, who, [i % servers for i in range(200)])
    run, done = Run(spec, SEED, replicate), []
    for _ in run.stretches(200):
        done += zip(*(a.tolist() for a in run.departed()), strict=True)
    same_bits(done, plain.done)


@pytest.mark.small
@given(
    servers=st.integers(1, 6),
    dispatcher=st.sampled_from(["random", "jsq", "sed", "round_robin"]),
    discipline=st.sampled_from(["fcfs", "ps"]),
    replicate=st.integers(0, 1000),
)
@settings(max_examples=40, deadline=None, derandomize=True)
def test_queue_lengths(servers, dispatcher, discipline, replicate) -> None:
    spec = question(servers, 0.9, "exponential", None, dispatcher=dispatcher, discipline=discipline)
    run = Run(spec, SEED, replicate, look_every=0.7)
    served, at = [], []
    left = {}
    for part in (70, 80):
        for now in run.stretches(part):
            at += now.at.tolist()
            served += zip(now.target.tolist(), now.wait.tolist(), now.work.tolist(), strict=True)
            if discipline == "ps":
                left |= {serial: delay for serial, delay, _ in zip(*run.departed(), strict=True)}
    if discipline == "ps":  # those still there have not left before the last arrival
        served = [(j, left.get(i, math.inf), service) for i, (j, _, service) in enumerate(served)]
    seen = {n: int(c) for n, c in enumerate(run.lengths) if c}
    assert seen == twin.lengths_seen(served, at, servers, 0.7)


@pytest.mark.small
def test_queue_lengths_at_the_time_of_events() -> None:
    """Who arrives as one looks is not there yet, who departs is gone."""
    spec = on_a_lattice(8, "round_robin")
    run = Run(spec, SEED, 0, look_every=0.5)
    (now,) = run.stretches(400)
    served = list(zip(now.target.tolist(), now.wait.tolist(), now.work.tolist(), strict=True))
    seen = {n: int(c) for n, c in enumerate(run.lengths) if c}
    assert seen == twin.lengths_seen(served, now.at.tolist(), 8, 0.5)


@pytest.mark.small
@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=200))
@same_run
def test_heap_of_a_sharing_server(steps) -> None:
    """Push and pop in any order: the least key leaves first, of equal ones the earliest."""
    size = len(steps)
    key, serial = np.zeros(size), np.arange(size)
    left, right = np.full(size, -1), np.full(size, -1)
    root, plain = -1, []
    for node, (value, push) in enumerate(steps):
        if push:
            key[node] = value
            root = stations.merge(root, node, key, serial, left, right)
            plain.append((value, node))
        elif plain:
            assert root == min(plain)[1]
            plain.remove(min(plain))
            root = stations.merge(left[root], right[root], key, serial, left, right)
    assert (root == -1) == (not plain)


@pytest.mark.parametrize("discipline", ["fcfs", "ps"])
def test_long_memory(discipline) -> None:
    """Ages so long that the ring of changes grows while it is in use, and forgets what is older."""
    spec = question(
        3,
        0.9,
        "exponential",
        None,
        dispatcher="jsq_d",
        discipline=discipline,
        update="continuous",
        period=60.0,
        age="uniform",
    )
    assert_same_general(spec, 0, "sample", "count", parts=(300, 300, 300, 300, 300, 1200))


def test_refreshes_do_not_drift() -> None:
    spec = make_spec(2, "jsq", utilisation=0.5, update="periodic", period=0.1)
    run = Run(spec, SEED, 0)
    for _ in run.stretches(20_000):
        pass
    k = round(run.clock / 0.1)
    assert run._board.view.clock[0] in ((k + j) * 0.1 for j in (-1, 0, 1))


def test_calendar_refiles_and_grows() -> None:
    """More departures to come than slots, and a gap of many rounds: still in order of time."""
    spec = make_spec(3, "jsq", utilisation=6.0, allow_unstable=True)
    at, sizes, _ = drawn(spec, 7, 4000)
    run = Run(spec, SEED, 7)
    targets = list(itertools.chain.from_iterable(now.target.tolist() for now in run.stretches(4000)))
    theirs = twin.shortest_queue(twin_stream(7, "routing"), at, sizes, [1.0] * 3)
    assert targets == [j for j, _, _ in theirs]
    gaps = np.concatenate([np.linspace(0.0, 1.0, 200), np.linspace(1e5, 1e5 + 1.0, 200)])
    spec = make_spec(5, "jsq", arrivals=gaps, rate=2.0, size="lognormal(mean=30, cv=2)", allow_unstable=True)
    at, sizes, _ = drawn(spec, 8, 400)
    targets, waits, _, _ = ours(spec, 8, 400)
    theirs = twin.shortest_queue(twin_stream(8, "routing"), at, sizes, [1.0] * 5)
    assert targets == [j for j, _, _ in theirs]
    same_bits(waits, [wait for _, wait, _ in theirs])
