"""Hash rings with bounded loads, sessions that stick, intervals of sizes: twins and what theory says."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fastsim import Cluster, simulate
from fastsim.workloads import Workload
from tests.router_replay import Replay, by_hand, disagreements, draw, make_scene

small = pytest.mark.small

PARAMS = {
    "consistent_hash_bounded": {
        "factor": [1.0, 1.25, 3.0],
        "key": ["session", "prefix"],
        "prefix_tok": [1, 5, 20],
    },
    "session_sticky": {"idle_s": [0.01, 0.1, 3600.0]},
    "size_interval": {
        "cuts": ["equal_work", "geometric"],
        "first_cut_tok": [3.0, 20.0],
        "ratio": [1.0, 1.5, 2.0],
    },
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
@pytest.mark.parametrize("factor", [1.0, 1.25, 2.0])
def test_no_load_is_above_the_bound(factor):
    """All keys alike: only the bound spreads them, and as far as it says."""
    n = 100
    replay = Replay(
        by_hand(*([0] for _ in range(n)), session=[0] * n), 5, "consistent_hash_bounded", {"factor": factor}
    )
    for request in range(n):
        r = replay.decide(request)
        replay.change(r, 1)
        assert replay.view.load[r] <= math.ceil(factor * (request + 1) / 5)
    used = (replay.view.load > 0).sum()
    assert used == math.ceil(5 / factor)


@small
def test_prefixes_stay_together_without_a_bound():
    rng = np.random.default_rng(1)
    workload = by_hand(*([int(rng.integers(30)), 30 + k] for k in range(300)), symbol_tok=300)
    first = workload.symbols[::2]

    params = {"factor": 1e9, "key": "prefix"}
    replica = simulate(workload, Cluster(6), "consistent_hash_bounded", params).columns["replica"]
    assert [len(set(replica[first == k].tolist())) for k in range(30)] == [1] * 30
    assert len(set(replica.tolist())) == 6


@small
def test_a_session_goes_to_the_least_loaded_once():
    workload = by_hand(*([k] for k in range(4)), session=[0, 0, -1, 0])
    replay = Replay(workload, 2, "session_sticky", {"idle_s": 100.0})
    assert replay.decide(0, 0) == 0
    replay.change(0, 5)
    assert [replay.decide(1, 99 * SECOND), replay.decide(2, 99 * SECOND)] == [0, 1]
    assert replay.decide(3, 199 * SECOND) == 1


def lengths(prompt_tok: np.ndarray) -> Workload:
    n = len(prompt_tok)
    return Workload(
        name="lengths",
        arrival_s=np.arange(n) * 1.0,
        prompt_tok=prompt_tok,
        output_tok=np.ones(n, np.int64),
        symbol_ptr=np.zeros(n + 1, np.int64),
        symbols=np.zeros(0, np.int64),
        symbol_tok=np.zeros(0, np.int64),
    )


@small
@pytest.mark.parametrize("law", ["pareto", "constant"])
def test_intervals_carry_equal_work(law):
    """SITA-E: every replica gets as many tokens, whether lengths are heavy-tailed or all the same."""
    rng = np.random.default_rng(2)
    n = 4000
    tokens = np.full(n, 500) if law == "constant" else np.ceil(100 * (1 + rng.pareto(2.5, n))).astype(int)
    result = simulate(lengths(tokens), Cluster(4), "size_interval")
    replica = result.columns["replica"]
    work = np.bincount(replica, tokens, minlength=4) / tokens.sum()
    assert abs(work * 4 - 1).max() < 0.08
    if law == "pareto":
        learnt = np.arange(n) > n // 2
        parts = [np.sort(tokens[learnt & (replica == r)]) for r in range(4)]
        shortest, longest = ([np.quantile(part, q) for part in parts] for q in (0.02, 0.98))
        assert all(longest[r] < 1.1 * shortest[r + 1] for r in range(3))


@small
def test_cut_points_given():
    tokens = np.array([1, 100, 101, 200, 201, 400, 401, 9000])
    params = {"cuts": "geometric", "first_cut_tok": 100.0, "ratio": 2.0}
    result = simulate(lengths(tokens), Cluster(4), "size_interval", params)
    assert result.columns["replica"].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


@small
@pytest.mark.parametrize(
    "router",
    [
        "vllm_consistent_hash",
        "consistent_hash_bounded",
        "sglang_prefix_hash",
        "sglang_bucket",
        "sglang_manual",
    ],
)
def test_a_replica_that_joins_gets_its_share(router):
    """Rings, ranges and tables of sessions have room for replicas that are not there yet."""
    rng = np.random.default_rng(3)
    n = 400
    workload = by_hand(*([k] for k in range(n)), symbol_tok=50, session=rng.integers(0, 300, n).tolist())
    replica = simulate(workload, Cluster(3, joins_s=[200.0]), router).columns["replica"]
    assert set(replica[:200].tolist()) == {0, 1}
    assert set(replica[200:].tolist()) == {0, 1, 2}
