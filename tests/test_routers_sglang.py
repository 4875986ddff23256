"""SGLang's policies against their twins over long replays, and what the system documents of each."""

from __future__ import annotations

import random

import numpy as np
import pytest

from fastsim import Cluster, simulate
from fastsim.cluster.routers import get
from fastsim.cluster.routers.sort import sort
from tests.router_replay import Replay, by_hand, choices, disagreements, draw, make_bushy_scene, make_scene

small = pytest.mark.small

CACHE_AWARE = {
    "cache_threshold": [0.0, 0.3, 0.7],
    "balance_abs_threshold": [0, 2, 64],
    "balance_rel_threshold": [1.0, 1.5],
    "eviction_interval_s": [0.02, 0.1, 0.5],
    "max_tree_size": [1, 30, 100, 400],
    "chars_per_tok": [1.0, 1.5],
}
PARAMS = {
    "sglang_cache_aware_smallest_tree": CACHE_AWARE,
    "sglang_cache_aware_lowest_load": CACHE_AWARE,
    "sglang_cache_aware_processed": CACHE_AWARE,
    "sglang_prefix_hash": {"prefix_tok": [1, 5, 20, 256], "load_factor": [1.0, 1.25, 3.0]},
    "sglang_power_of_two": {"reports": [True, False]},
    "sglang_bucket": {
        "balance_abs_threshold": [0, 32, 300, 10_000],
        "balance_rel_threshold": [1.0001, 2.0],
        "adjust_interval_s": [0.03, 0.2, 1.0],
        "chars_per_tok": [0.3, 1.0, 4.0],
    },
    "sglang_manual": {
        "assignment": ["random", "min_load", "min_group"],
        "idle_s": [0.02, 0.2, 3600.0],
        "sweep_s": [0.01, 0.1, 0.3],
    },
    "sglang_least_load": {
        "scrape_s": [0.01, 0.1, 1.0],
        "kv_pressure_s": [0.0, 0.15, 5.0],
        "throughput_tok_s": [20.0, 2000.0],
        "mean_prefill_tok": [0.0, 1.0, 1024.0],
    },
}
CACHES = [name for name in PARAMS if "cache_aware" in name]


@small
@pytest.mark.parametrize("router", list(PARAMS))
def test_every_decision_of_a_replay_is_the_twins(router):
    for seed in range(25):
        scene = make_scene(seed, mean_gap_s=[0.005, 0.05, 1.0][seed % 3])
        params = draw(seed, PARAMS[router])
        assert disagreements(scene, router, params) == [], (seed, params)


@small
@pytest.mark.parametrize("router", CACHES)
def test_trees_are_cut_leaf_by_leaf_as_the_twins_are(router):
    for seed in range(15):
        params = {**draw(seed, PARAMS[router]), "max_tree_size": [8, 20, 40][seed % 3], "chars_per_tok": 1.0}
        assert disagreements(make_bushy_scene(seed), router, params) == [], (seed, params)


@small
@pytest.mark.parametrize("router", CACHES)
def test_replays_are_such_that_evictions_matter(router):
    """Or a tree that never evicts would pass above."""

    def chosen(seed: int, size: int) -> list[int]:
        params = {"max_tree_size": size, "eviction_interval_s": 0.02, "chars_per_tok": 1.0}
        return [ours for _, ours in choices(make_scene(seed), router, params)]

    assert sum(chosen(seed, 30) != chosen(seed, 1 << 26) for seed in range(10)) > 4


# --- by hand ------------------------------------------------------------------------------------------------


@small
def test_defaults_are_those_of_the_release():
    release = {
        "cache_threshold": 0.3,
        "balance_abs_threshold": 64.0,
        "balance_rel_threshold": 1.5,
        "eviction_interval_s": 60.0,
        "max_tree_size": 2**26,
    }
    defaults = {
        **dict.fromkeys(CACHES, release),
        "sglang_prefix_hash": {"prefix_tok": 256, "load_factor": 1.25},
        "sglang_power_of_two": {"scrape_s": 10.0, "reports": True},
        "sglang_bucket": {"balance_abs_threshold": 32.0, "balance_rel_threshold": 1.0001},
        "sglang_manual": {"assignment": "random", "idle_s": 14_400.0, "sweep_s": 60.0},
        "sglang_least_load": {"scrape_s": 10.0, "kv_pressure_s": 0.15, "throughput_tok_s": 2000.0},
    }
    for router, known in defaults.items():
        spec = get(router).spec({})
        assert {name: getattr(spec, name) for name in known} == known
        assert get(router).view == "own"


@small
@pytest.mark.parametrize(
    ("loads", "balanced"),
    [((64, 0), True), ((65, 0), False), ((195, 130), True), ((196, 130), False), ((200, 135), True)],
)
def test_both_thresholds_are_strict(loads, balanced):
    """Above 64 apart, and above 1.5 times: then the least loaded worker, else the one with the match."""
    replay = Replay(by_hand([0, 1], [0, 1]), 2, "sglang_cache_aware_lowest_load", {})
    assert replay.decide(0) == 0
    replay.change(0, loads[0])
    replay.change(1, loads[1])
    assert replay.decide(1) == (0 if balanced else 1)


@small
def test_a_match_must_be_above_the_threshold():
    """3 of 10 symbols are no match above 0.3; 4 of 10 are."""
    for same, expected in ((3, 1), (4, 0)):
        other = [*range(same), *range(20, 30 - same)]
        replay = Replay(by_hand(list(range(10)), other), 2, "sglang_cache_aware_lowest_load", {})
        assert replay.decide(0) == 0
        replay.change(0, 1)
        assert replay.decide(1) == expected


@small
def test_the_first_to_be_sent_a_prefix_gets_it_however_loaded():
    workload = by_hand([0, 1], [0, 1], [0, 1])
    replay = Replay(workload, 2, "sglang_cache_aware_lowest_load", {})
    replay.change(1, 1)
    assert replay.decide(0) == 0
    replay.change(0, 70)  # out of balance: worker 1 is sent it, too
    assert replay.decide(1) == 1
    replay.change(0, -20)
    assert replay.decide(2) == 0


@small
def test_what_changed_in_december_2025():
    """sglang issue 14532: with the smallest tree, a loaded worker got all new prompts as well."""
    workload = by_hand(list(range(10)), list(range(10, 20)), [20], [21])
    for router, expected in (("smallest_tree", 1), ("lowest_load", 0)):
        replay = Replay(workload, 2, f"sglang_cache_aware_{router}", {})
        assert replay.decide(0) == 0  # worker 0 gets a long prompt and finishes it
        replay.change(1, 50)  # worker 1 is busy, but was sent little by this router
        assert replay.decide(2) == expected


@small
def test_load_that_is_never_counted_sends_everything_to_the_first_worker():
    """sglang issue 15473: one of the router's paths did not count what it sent."""
    workload = by_hand(*([k] for k in range(20)))
    for counted in (False, True):
        replay = Replay(workload, 2, "sglang_cache_aware_lowest_load", {})
        chosen = []
        for request in range(20):
            chosen.append(replay.decide(request))
            replay.change(chosen[-1], int(counted))
        assert chosen.count(0) == (10 if counted else 20)


@small
def test_processed_counts_break_ties_of_load():
    workload = by_hand(*([k] for k in range(6)))
    for router, expected in (("lowest_load", [0] * 6), ("processed", [0, 1, 2, 0, 1, 2])):
        replay = Replay(workload, 3, f"sglang_cache_aware_{router}", {})
        assert [replay.decide(request) for request in range(6)] == expected


@small
def test_prefixes_go_where_their_hash_says_at_every_router():
    """However many routers there are: all find the same worker, if its load does not matter."""
    rng = np.random.default_rng(0)
    workload = by_hand(*([int(rng.integers(8)), 8 + k] for k in range(200)), symbol_tok=300)
    result = simulate(workload, Cluster(4), "sglang_prefix_hash", {"load_factor": 1e6}, routers=5)
    first = workload.symbols[::2]
    homes = [set(result.columns["replica"][first == k].tolist()) for k in range(8)]
    assert all(len(home) == 1 for home in homes)
    assert len(set.union(*homes)) > 1


@small
def test_the_cut_points_of_a_window():
    """5, 10, 15, 20, 24 and 26 characters, 100 in all, for three workers: up to 20, up to 26, and longer."""
    lengths = [5, 10, 15, 20, 24, 26, 20, 21, 26, 27]
    workload = by_hand(*(list(range(k)) for k in lengths), symbol_tok=1)
    params = {"balance_abs_threshold": 1e9, "chars_per_tok": 1.0, "adjust_interval_s": 3.0}
    replay = Replay(workload, 3, "sglang_bucket", params)
    assert [replay.decide(request) for request in range(6)] == [0] * 6  # the first range ends at 1,364
    assert [replay.decide(request, 3 * 10**12) for request in range(6, 10)] == [0, 1, 1, 2]


@small
def test_a_session_stays_until_it_is_idle_for_too_long():
    workload = by_hand(*([k] for k in range(5)), session=[2] * 5)
    replay = Replay(workload, 2, "sglang_manual", {"assignment": "min_load", "idle_s": 100.0})
    replay.change(1, 1)
    assert replay.decide(0, 0) == 0
    replay.change(0, 9)
    assert [replay.decide(1, 99 * 10**12), replay.decide(2, 190 * 10**12)] == [0, 0]
    # Idle for 100 s at 290 s, but the sweep that notices comes at 300 s.
    assert [replay.decide(3, 299 * 10**12), replay.decide(4, 420 * 10**12)] == [0, 1]


@small
def test_time_to_drain_counts_queue_sent_and_memory():
    replay = Replay(by_hand([0], [1], [2], symbol_tok=2000), 2, "sglang_least_load", {})
    replay.view.waiting[:] = 1, 0  # 1,024 tokens of queue: 0.512 s
    assert replay.decide(0) == 1  # which then has 2,000 tokens: 1 s
    assert replay.decide(1) == 0
    np.testing.assert_allclose(replay.view.score, [0.512, 1.0])
    replay.view.kv_used[0] = round(0.9 * replay.view.kv_blocks[0])  # 0.15 x 9 = 1.35 s
    assert replay.decide(2, 10 * 10**12) == 1  # a poll: what was sent before no longer counts
    np.testing.assert_allclose(replay.view.score, [0.512 + 1.35, 0.0], rtol=1e-3)


@small
def test_sort():
    rng = random.Random(0)
    for length in range(40):
        values = np.array([rng.randint(0, length) for _ in range(length + 4)])
        expected = [*values[:2], *sorted(values[2 : length + 2]), *values[length + 2 :]]
        sort(values, 2, length + 2)
        assert values.tolist() == expected
