"""Preble's policy as its released code has it: where it departs from the paper, and its twin."""

from __future__ import annotations

import random

import numpy as np
import pytest

from fastsim.cluster.routers.preble_code import tpot_s
from tests.preble_scenes import ENGINES, Stage, play, prompts, random_prompts

small = pytest.mark.small
SYSTEM, DOCUMENT, PART, OTHER = 0, 1, 2, 3
SYMBOL_TOK = [20, 1000, 300, 300, 1000]
QUIET = {"rebalance": False, "decode_first": False, "eviction_cost": False, "times": "cluster"}


def stage(paths: list[list[int]], params: dict | None = None, own_tok: int = 100, **more) -> Stage:
    """Requests for these parts of documents, each with so many tokens of its own, answers of four tokens."""
    workload = prompts(paths, SYMBOL_TOK, [own_tok] * len(paths), [4] * len(paths))
    return Stage(workload, "preble_code", {**QUIET, **(params or {})}, **more)


@small
def test_a_full_hit_is_explored_where_its_last_node_is_the_long_one():
    scene = stage([[SYSTEM, DOCUMENT], [SYSTEM, OTHER], [SYSTEM, DOCUMENT]], own_tok=0)
    assert [scene.send(i, 0.1 * i) for i in range(3)] == [0, 1, 2]
    scene = stage([[SYSTEM, DOCUMENT], [SYSTEM, OTHER], [SYSTEM, DOCUMENT]], own_tok=1)
    assert [scene.send(i, 0.1 * i) for i in range(3)] == [0, 1, 0]


@small
def test_an_allocation_ends_with_the_last_request_of_the_window():
    scene = stage([[SYSTEM, DOCUMENT], [SYSTEM, OTHER], [SYSTEM, DOCUMENT]], {"horizon_s": 10.0})
    assert [scene.serve(0, 0.0), scene.send(1, 0.1), scene.serve(2, 9.9)] == [0, 1, 0]
    scene = stage([[SYSTEM, DOCUMENT], [SYSTEM, OTHER], [SYSTEM, DOCUMENT]], {"horizon_s": 10.0})
    assert [scene.serve(0, 0.0), scene.send(1, 9.0), scene.send(2, 10.0)] == [0, 1, 0]
    # Nobody is allocated the document any more; those that are the system prompt are candidates.
    np.testing.assert_array_equal(np.isfinite(scene.view.score), [True, True, False, False])


@small
def test_explored_requests_follow_the_best_hit_ratio_as_last_polled():
    paths = [[SYSTEM, DOCUMENT]] * 8 + [[SYSTEM, OTHER], [SYSTEM, PART], [SYSTEM, 4]]
    scene = stage(paths, {"decode_first": True})
    for i in range(8):
        assert scene.send(i, 0.05 * i) == 0
        scene.first_token(i, 0.05 * i + 0.01)
    assert scene.send(8, 0.45) == 1  # polled at 0: nothing had hit yet
    assert scene.send(9, 0.5) == 0  # 7 of 8 prompts hit for 91 %
    assert scene.send(10, 31.0) == 2  # and no more after 30 s


@small
def test_the_argmin_over_candidates_may_be_taken_for_a_replica():
    paths = [[SYSTEM, OTHER], [SYSTEM, DOCUMENT], [SYSTEM, DOCUMENT]]
    for bug, choice in ((False, 1), (True, 0)):
        scene = stage(paths, {"argmin_bug": bug})
        assert [scene.send(i, 0.1 * i) for i in range(3)] == [0, 1, choice]


@small
def test_the_time_per_token_is_a_median_with_an_assumed_one():
    scene = stage([[SYSTEM, DOCUMENT]] * 800, replicas=1)
    assert tpot_s(scene.view, 0) == 0.15
    tpots = [0.15]
    rng = random.Random(1)
    for i in range(800):
        scene.send(i, float(i))
        scene.first_token(i, float(i))
        took_s = rng.choice([0.03, 0.3, 0.6]) if i < 300 else rng.uniform(0.01, 0.9)  # equal ones, then none
        scene.finish(i, i + took_s)
        tpots.append((round((i + took_s) * 1e12) - round(i * 1e12)) * 1e-12 / 3)
        assert tpot_s(scene.view, 0) == np.median(tpots[-200:])


@small
def test_nodes_move_to_the_lightest_replica_with_all_below():
    """Two documents are on replica 1; when replica 0's has left the window, the cheaper one moves there."""
    paths = [[SYSTEM, DOCUMENT], [SYSTEM, PART, OTHER], [SYSTEM, 4], [SYSTEM, 4]]
    paths += [[SYSTEM, PART, OTHER]] * 3
    params = {"rebalance": True, "warm_requests": 0.0, "output_tok": 0.0, "horizon_s": 10.0}
    scene = stage(paths, params, replicas=2)
    times_s = [0.0, 1.0, 1.1, 1.2, 1.3, 10.0, 10.1]
    assert [scene.serve(i, now_s) for i, now_s in enumerate(times_s)] == [0, 1, 1, 1, 1, 1, 0]
    assert scene.twin.moves == 1
    assert [scene.twin.on[node] for node, _ in scene.nodes[1][1:]] == [{0}, {0}]
    assert scene.twin.on[scene.nodes[2][1][0]] == {1}


@small
def test_the_kernel_decides_as_its_twin():
    moves = added = 0
    for seed in range(16):
        rng = random.Random(f"preble_code {seed}")
        params = {
            "horizon_s": rng.choice([0.5, 2.0, 10.0]),
            "times": rng.choice(["cluster", "a6000"]),
            "decode_first": rng.random() < 0.5,
            "hit_ratio": rng.choice([0.1, 0.7]),
            "hit_window_s": rng.choice([0.3, 5.0]),
            "poll_s": rng.choice([0.05, 0.5]),
            "eviction_cost": rng.random() < 0.7,
            "rebalance": rng.random() < 0.8,
            "warm_requests": rng.choice([0.0, 2.0]),
            "argmin_bug": rng.random() < 0.1,
            "notices": rng.random() < 0.7,
        }
        engine = rng.choice(ENGINES)
        replicas = rng.choice([1, 2, 3, 5, 65])
        scene = Stage(random_prompts(rng, 60), "preble_code", params, replicas=replicas, engine=engine)
        play(scene, rng)
        moves += scene.twin.moves
        added += scene.twin.added
    assert moves > 0
    assert added > 0
