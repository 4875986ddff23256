"""Every queueing kernel against its twin in plain Python, bit for bit on the same streams."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastsim.queueing import blind, draws, throws
from fastsim.queueing import station as stations
from fastsim.queueing.laws import BoundedPareto, Erlang, Hyperexponential, Lognormal, Pareto, Weibull
from fastsim.queueing.run import Run
from fastsim.queueing.spec import make_spec
from fastsim.rng import stream, uniform
from tests.twins import queueing as twin
from tests.twins.queueing_general import General, Question
from tests.twins.rng import Xoshiro

SEED = 20_260

same_run = settings(max_examples=60, deadline=None, derandomize=True)


def twin_stream(replicate: int, name: str) -> Xoshiro:
    return Xoshiro(stream(SEED, replicate, name).tolist())


def same_bits(ours, theirs) -> None:
    np.testing.assert_array_equal(
        np.asarray(ours, np.float64).view(np.int64), np.asarray(theirs, np.float64).view(np.int64)
    )


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


SIZES = ["exponential", "bounded_pareto(alpha=1.1, ratio=500)", "deterministic"]
speeds_of = st.sampled_from([None, "slow and fast"])


def drawn(spec, replicate: int, n: int) -> tuple[list[float], list[float], list[int]]:
    """Arrival times, sizes and dispatchers of a run, from the kernels tested above."""
    at, sizes, dispatchers = np.empty(n), np.empty(n), np.zeros(n, np.int64)
    spec.arrivals.fill(stream(SEED, replicate, "arrivals"), at, spec.arrivals.memory())
    spec.size.fill(stream(SEED, replicate, "sizes"), sizes)
    if spec.dispatchers > 1:
        blind.random_targets(stream(SEED, replicate, "dispatchers"), dispatchers, spec.dispatchers)
    return at.tolist(), sizes.tolist(), dispatchers.tolist()


def ours(spec, replicate: int, n: int) -> tuple[list[int], list[float], list[float], Run]:
    run = Run(spec, SEED, replicate)
    targets, waits, services = [], [], []
    for part in (n // 3, n - n // 3):  # to see that a run can be gone on with
        for now in run.stretches(part):
            targets += now.target.tolist()
            waits += now.wait.tolist()
            services += now.work.tolist()
    return targets, waits, services, run


def question(servers, load, size, uneven, **more):
    speeds = None if uneven is None else [1.0 + (j % 3) for j in range(servers)]
    return make_spec(servers, utilisation=load, size=size, speeds=speeds, allow_unstable=True, **more)


def assert_same(spec, replicate: int, n: int, theirs) -> None:
    targets, waits, services, _ = ours(spec, replicate, n)
    assert targets == [j for j, _, _ in theirs]
    same_bits(waits, [wait for _, wait, _ in theirs])
    same_bits(services, [service for _, _, service in theirs])


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


RULES = {
    "jsq": ("full", "count"),
    "jsq_d": ("sample", "count"),
    "lwl": ("full", "work"),
    "lwl_d": ("sample", "work"),
    "sed": ("full", "delay"),
    "sed_d": ("sample", "delay"),
    "jiq": ("idle", "count"),
}
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


def assert_same_general(spec, replicate: int, rule: str, score: str, parts=(50, 100)) -> None:
    """Requests through the general kernels, in parts, and through the twin."""
    at, sizes, who = drawn(spec, replicate, sum(parts))
    asked = Question(
        (1.0 / spec.speeds).tolist(),
        spec.discipline == "ps",
        rule,
        score,
        spec.update,
        spec.age,
        spec.period,
        spec.d,
        spec.replacement,
        spec.memory,
        spec.add_own,
        spec.dispatchers,
    )
    plain = General(asked, twin_stream(replicate, "routing"), twin_stream(replicate, "updates"))
    theirs = plain.serve(at, sizes, who)
    run, served, done = Run(spec, SEED, replicate), [], []
    for part in parts:
        for now in run.stretches(part):
            served += zip(now.target.tolist(), now.wait.tolist(), now.work.tolist(), strict=True)
            if spec.discipline == "ps":
                done += zip(*(a.tolist() for a in run.departed()), strict=True)
    assert [s[0] for s in served] == [t[0] for t in theirs]
    same_bits([s[1:] for s in served], [t[1:] for t in theirs])
    assert [p[0] for p in done] == [t[0] for t in plain.done]
    same_bits([p[1:] for p in done], [t[1:] for t in plain.done])


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
