"""Runs of queues beside their twins, for the tests."""

from __future__ import annotations

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from fastsim.queueing import blind
from fastsim.queueing.run import Run
from fastsim.queueing.spec import make_spec
from fastsim.rng import stream
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


RULES = {
    "jsq": ("full", "count"),
    "jsq_d": ("sample", "count"),
    "lwl": ("full", "work"),
    "lwl_d": ("sample", "work"),
    "sed": ("full", "delay"),
    "sed_d": ("sample", "delay"),
    "jiq": ("idle", "count"),
}


def assert_same_general(
    spec, replicate: int, rule: str, score: str, parts=(50, 100), targets: list[int] | None = None
) -> None:
    """Requests through the general kernels, in parts, and through the twin; `targets` where rule is given."""
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
    theirs = plain.serve(at, sizes, who, targets)
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
