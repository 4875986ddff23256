"""Replicas that restart, join late or are slow: the engine is its twin, and obeys plain laws."""

from __future__ import annotations

import random
from itertools import product

import numpy as np
import pytest

from fastsim import Cluster, simulate
from fastsim.cluster.outages import Restart, outage_rows, restarts_of
from fastsim.cluster.routers import ROUTERS
from fastsim.errors import InputError
from fastsim.workloads import make
from tests.cluster_runs import differences, serve, serve_slowly
from tests.odd_router import VARIANTS, odd_params, odd_routers
from tests.router_cases import routed_case, some_view, unlike_its_twin
from tests.twins.cluster import HeldForEver

small = pytest.mark.small
every_engine = pytest.mark.parametrize("engine", ["vllm", "lecture"])
PLAIN = ("round_robin", "power_of_two", "least_work", "prefix_affinity", "cache_aware_guard")
SYSTEMS = ("sglang_cache_aware_lowest_load", "vllm_dp_balancer", "dynamo_kv", "epp_precise")
SOME = (*PLAIN, *SYSTEMS, *VARIANTS)
KINDS = ("restarts", "joins_s", "speeds")
FEW, MANY = range(30), range(30, 150)


def troubled_case(seed: int, engine: str, routers: tuple[str, ...] = SOME) -> dict:
    """A random case in which replicas restart, join late and are slow, at instants when something happens."""
    rng = random.Random(f"outages-{engine}-{seed}")
    settings = {"engine": engine, "replicas": rng.choice([1, 2, 3, 4, 8])}
    name = rng.choice(routers)
    if name in VARIANTS:
        holds, sends = rng.choice([0, 300]), rng.choice([0, 300])
        settings["router_params"] = odd_params(name, rejects=rng.choice([0, 100]), holds=holds, sends=sends)
    case = routed_case(name, seed, **settings)
    case["view"] = some_view(rng, case)
    replicas = case["replicas"]
    rows = case["requests"]
    step_s = (sum(case["step_ms"]["pieces"][0][0][:3]) + 1000) / 1e15
    span_s = rows[-1]["arrival_s"] + 30 * step_s

    def instant() -> float:
        kind = rng.random()
        if kind < 0.3:
            return rng.choice(rows)["arrival_s"]
        if kind < 0.6:
            return rng.choice(rows)["arrival_s"] + rng.randint(0, 20) * step_s
        return rng.random() * span_s

    def wait() -> float:
        return rng.choice([0.0, 0.0, rng.randint(1, 5) * step_s, rng.random() * span_s])

    if rng.random() < 0.8:
        case["restarts"] = [
            {"replica": rng.randrange(replicas), "at_s": instant(), "down_s": wait(), "told_after_s": wait()}
            for _ in range(rng.choice([1, 1, 2, 3, 8]))
        ]
    if replicas > 1 and rng.random() < 0.5:
        case["joins_s"] = [instant() for _ in range(rng.randint(1, replicas - 1))]
    if rng.random() < 0.5:
        case["speeds"] = [rng.choice([1.0, 1.0, 0.5, 0.25, 0.1]) for _ in range(replicas)]
    return case


def failures(seeds: range, engine: str) -> list[str]:
    """Every difference of any case: jumping, step by step, from tiny pools."""
    with odd_routers():
        return [each for seed in seeds for each in unlike_its_twin(troubled_case(seed, engine))]


@small
@every_engine
def test_random_outages(engine):
    assert failures(FEW, engine) == []


@every_engine
def test_many_random_outages(engine):
    assert failures(MANY, engine) == []


@small
def test_what_a_request_generated_is_shared_with_nobody_in_the_lectures_engine():
    """Longest prefix first after a restart: two with answers begun, and a token of prompt in common."""
    case = troubled_case(23, "lecture", ("preble",))
    assert case["engine"]["order"] == "longest_prefix"
    assert differences(serve(case), serve_slowly(case)) == []


@small
@pytest.mark.parametrize("router", list(ROUTERS))
def test_every_policy_bears_restarts_and_joins(router):
    """Equal to its twin, and nothing ends on a replica before that has joined."""
    cases = [troubled_case(seed, "vllm", (router,)) for seed in range(20)]
    for case in [case for case in cases if "joins_s" in case][:3]:
        try:
            result = serve(case)
        except InputError:  # it holds requests back for ever
            with pytest.raises(HeldForEver):
                serve_slowly(case)
            continue
        joins = sorted(case["joins_s"])
        for r, at_s in enumerate(joins, start=case["replicas"] - len(joins)):
            here = result.columns["replica"] == r
            assert (result.columns["done_s"][here] > at_s).all()
        assert differences(result, serve_slowly(case)) == []


def test_the_cases_are_of_every_kind():
    """Or the tests above would be silent about what they leave out."""
    with odd_routers():
        cases = [troubled_case(seed, engine) for engine in ("vllm", "lecture") for seed in FEW]
    kinds = {(case["view"].split("(")[0], *(name in case for name in KINDS)) for case in cases}
    assert len(kinds) > 20
    assert {case["router"] for case in cases} == set(SOME)
    downs = [restart for case in cases for restart in case.get("restarts", [])]
    assert {(restart["down_s"] > 0, restart["told_after_s"] > 0) for restart in downs} == set(
        product([False, True], repeat=2)
    )


# --- laws ---------------------------------------------------------------------------------------------------


@small
@every_engine
def test_every_request_finishes_once_whatever_happens(engine):
    for seed in FEW:
        case = troubled_case(seed, engine, ("round_robin", "cache_aware_guard", "dynamo_kv"))
        result = serve(case)
        rows = result.columns
        assert (rows["replica"] >= 0).all()
        assert (rows["first_token_s"] > rows["arrival_s"]).all()
        assert (rows["done_s"] >= rows["first_token_s"]).all()
        served = np.bincount(rows["replica"], minlength=case["replicas"])
        assert result.replicas["requests"].tolist() == served.tolist()


@small
def test_no_request_is_on_a_replica_that_has_not_joined():
    late = 0
    for seed in FEW:
        case = troubled_case(seed, "vllm", PLAIN)
        joins = sorted(case.get("joins_s", []))
        rows = serve(case).columns
        for k, at_s in enumerate(joins):
            here = rows["replica"] == case["replicas"] - len(joins) + k
            assert (rows["arrival_s"][here] >= round(at_s, 12)).all()
            late += int(here.sum())
    assert late > 20


def lone(**settings) -> dict:
    """One replica, a prompt of 64 tokens asked for three times, a second apart; a step takes 10 ms."""
    row = {"path": [1], "output_tokens": 3}
    return {
        "segments": {"1": 64},
        "requests": [{**row, "arrival_s": float(k)} for k in range(3)],
        "engine": {"block_size": 16, "num_blocks": 101, "max_num_seqs": 4, "max_num_batched_tokens": 100},
        "step_ms": {"kind": "fixed", "prefill": 10.0, "decode": 10.0},
        **settings,
    }


@small
def test_the_cache_is_empty_after_a_restart():
    assert serve(lone()).columns["hit_tok"].tolist() == [0, 48, 48]
    restarted = serve(lone(restarts=[{"replica": 0, "at_s": 0.5}]))
    assert restarted.columns["hit_tok"].tolist() == [0, 0, 48]
    assert restarted.replicas["evicted_blocks"].tolist() == [0]


@small
def test_a_step_that_is_lost_is_made_again_and_counts_once():
    """The prefill ends at 10 ms, the second token comes at 20 ms; at 25 ms the third is lost, for 0.1 s."""
    result = serve(lone(restarts=[{"replica": 0, "at_s": 0.025, "down_s": 0.1}]))
    assert result.columns["first_token_s"][0] == pytest.approx(0.01, abs=1e-12)
    assert result.columns["done_s"][0] == pytest.approx(0.135, abs=1e-12)
    assert result.columns["preemptions"].tolist() == [1, 0, 0]
    assert result.replicas["steps"].tolist() == [9]
    assert result.replicas["busy_s"][0] == pytest.approx(0.09, abs=1e-12)


@small
def test_a_replica_that_is_down_does_not_come_back_sooner_for_another_restart():
    restarts = [{"replica": 0, "at_s": 0.9, "down_s": 2.0}, {"replica": 0, "at_s": 1.5, "down_s": 0.0}]
    done_s = serve(lone(restarts=restarts)).columns["done_s"]
    assert done_s == pytest.approx([0.03, 2.93, 2.93], abs=1e-12)


@small
@pytest.mark.parametrize(("told_after_s", "expected"), [(0.0, [0, 1]), (1.0, [0, 0])])
def test_who_is_not_told_goes_where_the_cache_was(told_after_s, expected):
    """Replica 0 has the prompt and one request in flight when it loses it; the router prefers less load."""
    restart = {"replica": 0, "at_s": 0.5, "told_after_s": told_after_s}
    case = lone(replicas=2, router="prefix_affinity", caches="events", restarts=[restart])
    case["requests"] = [
        {"arrival_s": 0.0, "path": [1], "output_tokens": 90},
        {"arrival_s": 0.6, "path": [1], "output_tokens": 1},
    ]
    # the first request is back at once and has its blocks again: keep it waiting
    case["restarts"][0]["down_s"] = 0.3
    assert serve(case).columns["replica"].tolist() == expected


@small
@every_engine
def test_at_half_the_speed_every_step_takes_twice_as_long(engine):
    for seed in range(20):
        case = {**troubled_case(seed, engine, ("round_robin",)), "replicas": 1}
        case = {name: case[name] for name in case if name not in KINDS}
        case["requests"] = [{**row, "arrival_s": 0.0} for row in case["requests"]]
        once, twice = serve(case), serve({**case, "speeds": [0.5]})
        assert twice.replicas["steps"].tolist() == once.replicas["steps"].tolist()
        for name in ("first_token_s", "done_s"):  # which are rounded down to whole picoseconds
            more_ps = np.rint(1e12 * twice.columns[name]) - 2 * np.rint(1e12 * once.columns[name])
            assert set(more_ps) <= {0, 1}


@small
def test_outages_are_in_the_order_of_time_then_joins_restarts_and_news():
    restarts = [
        {"replica": 1, "at_s": 2.0, "down_s": 3.0, "told_after_s": 1.0},
        {"replica": 0, "at_s": 3.0},
        {"replica": 0, "at_s": 1.0},
    ]
    rows = outage_rows(restarts_of([Restart(**each) for each in restarts], 3), [3.0], 3).tolist()
    s = 10**12
    assert rows == [[s, 1, 0, 0], [2 * s, 2, 1, 3 * s], [3 * s, 0, 2, 0], [3 * s, 1, 0, 0], [3 * s, 3, 1, 0]]


@small
def test_restarts_change_nothing_when_all_is_done():
    """An outage after the last request is nobody's concern: what is cached at the end stays."""
    result = serve(lone(restarts=[{"replica": 0, "at_s": 50.0}]))
    assert result.requests.equals(serve(lone()).requests)
    assert result.copies == serve(lone()).copies
    assert differences(result, serve_slowly(lone(restarts=[{"replica": 0, "at_s": 50.0}]))) == []


def test_a_replica_that_joins_between_two_polls_is_scored_with_the_others():
    """What a policy makes of the metrics it keeps until they change, and they do when a replica joins."""
    workload = make("unique", requests=60, rate_rps=2.0, seed=3)
    joins_s = float(workload.arrival_s[10]) + 1e-6
    cluster = Cluster(replicas=3, joins_s=(joins_s,))
    for router in ("epp", "epp_precise"):
        chosen = simulate(workload, cluster, router, {"scrape_s": 1000.0}).columns["replica"]
        assert set(chosen[:11]) <= {0, 1}
        assert set(chosen[11:]) == {0, 1, 2}, router
