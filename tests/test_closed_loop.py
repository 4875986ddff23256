"""Sessions whose turns wait for answers: equal to the slow twin, and to an open run at the times found."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from fastsim import Cluster, simulate
from fastsim.cluster.closed_loop import as_it_came
from fastsim.cluster.step_time import StepTime
from fastsim.errors import InputError
from fastsim.workloads import Workload, combine, make
from fastsim.workloads.sessions import sessions_of
from fastsim.workloads.transforms import compress_time, repeat, shuffle_sessions, thin
from tests.cluster_runs import COLUMNS, differences, serve, serve_slowly
from tests.router_cases import routed_case, tiny_pools
from tests.twins.cases import make_case
from tests.twins.cluster import HeldForEver

pytestmark = pytest.mark.small

STEP = StepTime.fixed(1.0, 0.5)


def with_sessions(case: dict, seed: int) -> dict:
    """The case with about half of its requests following earlier ones, some at once."""
    rng = random.Random(seed)
    gaps_s = [0.0, 0.0, 1e-12, 0.001, rng.random()]
    for i, row in enumerate(case["requests"]):
        if i and rng.random() < 0.5:
            row["follows"] = rng.randrange(i)
            row["think_s"] = rng.choice(gaps_s)
    return case


def check_against_twin(case: dict, what: str) -> bool:
    """Both do the same, and say so of requests that are held back for ever; returns whether none was."""
    try:
        outcome = serve_slowly(case)
    except HeldForEver:
        with pytest.raises(InputError, match="holds requests back for ever"):
            serve(case)
        return False
    result = serve(case)
    back = np.argsort(result.columns["request"])
    in_file_order = replace(result, columns={name: result.columns[name][back] for name in result.columns})
    assert differences(in_file_order, outcome) == [], what
    came = [request.arrival_ps for request in outcome.requests]
    assert np.rint(in_file_order.columns["arrival_s"] * 1e12).astype(int).tolist() == came
    assert (np.diff(result.columns["arrival_s"]) >= 0).all()
    return True


@pytest.mark.parametrize("engine", ["vllm", "lecture"])
def test_the_same_as_the_twin(engine):
    for seed in range(60):
        assert check_against_twin(with_sessions(make_case(seed, engine), seed), f"{engine} {seed}")


@pytest.mark.parametrize("router", ["dynamo_kv", "mooncake", "cache_aware_guard"])
def test_the_same_as_the_twin_where_routers_hold_back_refuse_or_send_blocks(router):
    assert sum(
        check_against_twin(with_sessions(routed_case(router, seed), seed), f"{router} {seed}")
        for seed in range(60)
    )


def test_a_run_that_has_to_grow_its_pools_is_the_same():
    with tiny_pools() as grown:
        for seed in range(12):
            for router in ("round_robin", "dynamo_kv", "mooncake"):
                check_against_twin(with_sessions(routed_case(router, seed), seed), f"{router} {seed}")
    assert {"ext", "hold", "table"} <= set(grown)


def chain(think_s=(0.0, 2.0, 5.0), output_tok=3) -> Workload:
    """One session of turns that share nothing."""
    n = len(think_s)
    return Workload(
        name="chain",
        arrival_s=np.cumsum(think_s),
        prompt_tok=np.full(n, 10),
        output_tok=np.full(n, output_tok),
        symbol_ptr=np.zeros(n + 1, np.int64),
        symbols=np.empty(0, np.int64),
        symbol_tok=np.empty(0, np.int64),
        session=np.zeros(n, np.int64),
        follows=np.arange(-1, n - 1),
        think_s=np.array(think_s),
    )


def test_a_turn_comes_its_think_time_after_the_answer_before_it():
    result = simulate(chain(), Cluster(2, step_time=STEP, kv_tok=1024))
    # A prefill of 1 s and two decode steps of 0.5 s a turn.
    assert result.columns["arrival_s"].tolist() == [0.0, 4.0, 11.0]
    assert result.columns["done_s"].tolist() == [2.0, 6.0, 13.0]
    assert result.columns["request"].tolist() == [0, 1, 2]


def test_sessions_never_have_two_requests_in_flight_however_slow_the_cluster():
    many = combine([chain((0.1 * k, 0.0, 0.0, 0.0)) for k in range(20)])
    result = simulate(many, Cluster(1, step_time=STEP, kv_tok=1024, max_seqs=2), "least_loaded")
    session = many.session[result.columns["request"]]
    for number in range(20):
        mine = session == number
        arrival, done = result.columns["arrival_s"][mine], result.columns["done_s"][mine]
        assert (arrival[1:] == done[:-1]).all()
    assert result.figures["requests"] == 80


def test_a_refused_turn_is_followed_all_the_same():
    result = simulate(chain((0.0, 2.0, 2.0)), Cluster(1, step_time=STEP, kv_tok=1024), most_load=0.0)
    assert result.columns["replica"].tolist() == [0, 0, 0]
    two = combine([chain((0.0, 2.0)), chain((1.0, 2.0))])
    result = simulate(two, Cluster(1, step_time=STEP, kv_tok=1024), most_load=0.0)
    assert result.columns["arrival_s"].tolist() == [0.0, 1.0, 3.0, 4.0]
    assert result.columns["replica"].tolist() == [0, -1, 0, -1]


def test_as_it_came_is_an_open_run_of_the_same():
    workload = combine([chain((0.3 * k, 1.0, 2.0)) for k in range(8)])
    cluster = Cluster(2, step_time=STEP, kv_tok=1024)
    closed = simulate(workload, cluster, "least_loaded", record=True)
    came, numbered = as_it_came(workload, closed)
    opened = simulate(came, cluster, "least_loaded", record=True)
    assert not came.is_closed
    for name in COLUMNS:
        np.testing.assert_array_equal(opened.columns[name], closed.columns[name])
    assert opened.routes.equals(numbered.routes)


# ---------------------------------------------------------------- workloads


def test_a_request_follows_an_earlier_one():
    with pytest.raises(InputError, match="follows at 1 is 1; it must be -1 or an earlier request"):
        replace(chain(), follows=np.array([-1, 1, 1]))
    with pytest.raises(InputError, match=r"think_s at 2 is -1\.0; it must be finite, 0 or more"):
        replace(chain(), think_s=np.array([0.0, 0.0, -1.0]))


def test_think_times_count_in_the_digest_and_open_workloads_keep_theirs():
    assert chain().digest() != replace(chain(), think_s=np.zeros(3)).digest()
    workload = make("unique", requests=5)
    assert replace(workload, think_s=np.ones(5)).digest() == workload.digest()


def test_another_rate_starts_sessions_more_often_and_leaves_think_times():
    two = combine([chain((0.0, 8.0)), chain((4.0, 1.0))])  # at 0, 8 and at 4, 5
    fast = compress_time(two, 2.0)
    assert fast.arrival_s.tolist() == [0.0, 2.0, 3.0, 8.0]
    assert fast.follows.tolist() == [-1, -1, 1, 0]
    assert fast.think_s.tolist() == [0.0, 0.0, 1.0, 8.0]


def test_thinning_keeps_sessions_whole():
    many = combine([chain((float(k), 1.0, 1.0)) for k in range(200)])
    kept = thin(many, 0.3, np.random.default_rng(0))
    assert 0.2 < len(kept) / len(many) < 0.4
    assert (np.bincount(kept.session)[np.unique(kept.session)] == 3).all()
    assert np.count_nonzero(kept.follows >= 0) == 2 * len(kept) / 3


def test_requests_that_follow_each_other_are_a_session():
    without = replace(combine([chain(), chain()]), session=np.full(6, -1))
    assert sessions_of(without).tolist() == [0, 1, 0, 1, 0, 1]
    shuffled = shuffle_sessions(without, np.random.default_rng(0))
    assert np.count_nonzero(shuffled.follows >= 0) == 4


def test_what_is_left_of_a_session_comes_at_its_own_times():
    rest = chain().take(np.array([1, 2]))
    assert rest.follows.tolist() == [-1, 0]
    assert rest.think_s.tolist() == [0.0, 5.0]
    gap = chain().take(np.array([0, 2]))
    assert gap.follows.tolist() == [-1, 0]
    assert gap.think_s.tolist() == [0.0, 7.0]
    twice = repeat(chain(), 2)
    assert twice.follows.tolist() == [-1, 0, 1, -1, 3, 4]
