"""vLLM's policies against their twins over long replays, and what the system documents of each."""

from __future__ import annotations

import numpy as np
import pytest

from fastsim import Cluster, simulate
from fastsim.cluster.routers import get
from fastsim.cluster.routers.sessions import sessions_at
from fastsim.cluster.routers.view import N_ROUTERS
from tests.router_replay import Replay, by_hand, choices, disagreements, draw, make_bushy_scene, make_scene

small = pytest.mark.small

PARAMS = {
    "vllm_cache_aware": {
        "cache_threshold": [0.0, 0.3, 0.7],
        "balance_abs_threshold": [0, 2, 64],
        "balance_rel_threshold": [1.0, 1.5],
        "eviction_interval_s": [0.02, 0.1, 0.5],
        "max_tree_size": [1, 30, 100, 400],
        "session_idle_s": [0.01, 0.1, 3600.0],
    },
    "vllm_consistent_hash": {},
    "vllm_sticky_least_loaded": {"idle_s": [0.02, 0.2, 3600.0], "sweep_s": [0.01, 0.1, 0.3]},
    "vllm_kv_aware": {"overlap_weight": [0.0, 1.0, 30.0], "block_tok": [1, 16]},
    "vllm_dp_balancer": {"kv_weight": [0.0, 6.0], "kv_threshold": [0.0, 0.5, 1.0]},
    "vllm_dp_balancer_before": {"scrape_s": [0.01, 0.1, 1.0], "waiting_weight": [0.0, 0.5, 4.0]},
}
SECOND = 10**12


@small
@pytest.mark.parametrize("router", list(PARAMS))
def test_every_decision_of_a_replay_is_the_twins(router):
    for seed in range(25):
        scene = make_scene(seed, mean_gap_s=[0.005, 0.05, 1.0][seed % 3])
        params = draw(seed, PARAMS[router])
        assert disagreements(scene, router, params) == [], (seed, params)


@small
def test_trees_are_cut_leaf_by_leaf_as_the_twins_are():
    for seed in range(15):
        params = {**draw(seed, PARAMS["vllm_cache_aware"]), "max_tree_size": [8, 20, 40][seed % 3]}
        assert disagreements(make_bushy_scene(seed), "vllm_cache_aware", params) == [], (seed, params)


@small
def test_replays_are_such_that_evictions_and_sessions_matter():
    """Or a tree that never evicts, or forgets no session, would pass above."""

    def chosen(seed: int, **params: float) -> list[int]:
        tight = {"max_tree_size": 30, "eviction_interval_s": 0.02, "session_idle_s": 0.05}
        return [ours for _, ours in choices(make_scene(seed), "vllm_cache_aware", {**tight, **params})]

    for loose in ({"max_tree_size": 1 << 25}, {"session_idle_s": 3600.0}):
        assert sum(chosen(seed) != chosen(seed, **loose) for seed in range(10)) > 2, loose


@small
def test_defaults_are_those_of_the_release():
    release = {
        "cache_threshold": 0.3,
        "balance_abs_threshold": 64.0,
        "balance_rel_threshold": 1.5,
        "eviction_interval_s": 120.0,
        "max_tree_size": 2**25,
        "session_idle_s": 3600.0,
    }
    defaults = {
        "vllm_cache_aware": release,
        "vllm_sticky_least_loaded": {"idle_s": 7200.0, "sweep_s": 60.0},
        "vllm_kv_aware": {"overlap_weight": 1.0, "block_tok": 16},
        "vllm_dp_balancer": {"scrape_s": 0.1, "kv_weight": 6.0, "kv_threshold": 0.5},
        "vllm_dp_balancer_before": {"scrape_s": 0.1, "waiting_weight": 4.0},
    }
    for router, known in defaults.items():
        spec = get(router).spec({})
        assert {name: getattr(spec, name) for name in known} == known


@small
def test_the_least_loaded_of_those_with_the_match():
    workload = by_hand([0, 1], [0, 1], [0, 1])
    replay = Replay(workload, 3, "vllm_cache_aware", {})
    replay.change(1, 1)
    replay.change(2, 2)
    assert replay.decide(0) == 0
    replay.change(0, 70)  # out of balance: worker 1 is sent it, too
    assert replay.decide(1) == 1
    replay.change(0, -20)
    assert replay.decide(2) == 1  # the first was 0, but that has 50 requests in flight


@small
def test_a_session_comes_before_the_tree_and_moves_while_loads_are_out_of_balance():
    workload = by_hand([0, 1], [0, 1], [2, 3], [2, 3], [0, 1], session=[-1, 4, 4, 4, 4])
    replay = Replay(workload, 2, "vllm_cache_aware", {"session_idle_s": 100.0})
    assert [replay.decide(0, 0), replay.decide(1, 0)] == [0, 0]  # by the match
    replay.change(0, 60)
    assert replay.decide(2, 0) == 0  # by the session, though nothing matches
    replay.change(0, 10)
    assert replay.decide(3, 0) == 1
    replay.change(0, -20)
    assert replay.decide(4, 99 * SECOND) == 1  # its session has moved there; the match is on 0, too


@small
def test_sessions_are_counted_not_requests():
    workload = by_hand(*([k] for k in range(5)), session=[0, 0, 0, 1, -1])
    replay = Replay(workload, 2, "vllm_sticky_least_loaded", {"idle_s": 100.0})
    home = replay.decide(0, 0)
    assert [replay.decide(1, 0), replay.decide(2, 0)] == [home, home]
    replay.change(1 - home, 9)
    assert replay.decide(3, 0) == 1 - home


@small
def test_a_sweep_comes_when_it_is_due_and_takes_what_has_been_idle_for_as_long_as_it_may():
    workload = by_hand([0], [1], session=[0, 1])
    for sweep_s, idle_s, left in ((60.0, 60.0, 1), (60.1, 60.0, 2), (60.0, 60.1, 2)):
        replay = Replay(workload, 2, "vllm_sticky_least_loaded", {"idle_s": idle_s, "sweep_s": sweep_s})
        replay.decide(0, 0)
        replay.decide(1, 60 * SECOND)
        assert sum(sessions_at(replay.view, r) for r in range(2)) == left


@small
def test_a_ring_moves_keys_to_the_newcomer_only_and_about_its_share():
    n = 2000
    workload = by_hand(*([0] for _ in range(n)), session=list(range(n)))
    homes = [
        simulate(workload, Cluster(replicas), "vllm_consistent_hash").columns["replica"]
        for replicas in (7, 8)
    ]
    moved = homes[0] != homes[1]
    assert set(homes[1][moved].tolist()) == {7}
    assert 0.5 / 8 < moved.mean() < 2.0 / 8
    shares = np.bincount(homes[1], minlength=8) / n
    # 160 nodes a replica: shares of the circle deviate by 1/sqrt(160) = 8 %, of 2,000 keys by 6 % more.
    assert abs(shares * 8 - 1).max() < 0.4


@small
def test_blocks_to_compute_against_blocks_in_use():
    replay = Replay(by_hand([0], symbol_tok=1600), 3, "vllm_kv_aware", {})
    replay.view.match[:] = 0, 800, 1600
    replay.view.kv_used[:] = 0, 40, 101
    assert replay.decide(0) == 1
    np.testing.assert_allclose(replay.view.score, [100, 90, 101])


@small
def test_both_formulas_of_the_balancer_inside_vllm():
    replay = Replay(by_hand(*([k] for k in range(3))), 3, "vllm_dp_balancer", {})
    view = replay.view
    view.prompt[N_ROUTERS] = 4
    view.waiting[:] = 2, 0, 0
    view.running[:] = 3, 9, 3
    view.kv_blocks[0], view.kv_used[0] = 4096, 3072
    replay.change(2, 2)
    assert replay.decide(0) == 0  # 5 and 2 x 6 x 0.25; 9; 4 x 2 of its own
    np.testing.assert_allclose(view.score, [8, 9, 8])
    assert replay.decide(1) == 2  # the same scores, from the second engine on
    before = Replay(by_hand(*([k] for k in range(3))), 2, "vllm_dp_balancer_before", {})
    before.view.prompt[N_ROUTERS] = 4
    before.view.running[:] = 0, 10
    assert [before.decide(0, 0), before.decide(1, 0)] == [0, 1]  # 4 clients, each counts one waiting: 16
    assert before.decide(2, SECOND // 10) == 0  # until the next snapshot
