"""Preble's policy as the paper has it and the lecture's E2: its formulas, each branch, and its twin."""

from __future__ import annotations

import random

import numpy as np
import pytest

from fastsim import Cluster, simulate
from fastsim.cluster.prefix import compile_prompts, parts_of_runs, tree_prompts
from fastsim.cluster.routers._preble_times import A6000, A6000_INTERPOLATED, CLUSTER, prefill_ps, regression_s
from fastsim.cluster.routers._preble_window import mean_output_tok
from fastsim.cluster.routers.preble import OUTPUT_MEAN
from fastsim.cluster.step_time import StepTime
from fastsim.workloads import make
from tests.preble_scenes import ENGINES, Stage, play, prompts, random_prompts

small = pytest.mark.small
SYSTEM, DOCUMENT, PART, OTHER = 0, 1, 2, 3
SYMBOL_TOK = [20, 1000, 300, 300, 1000]
QUIET = {"rebalance": False, "pairing": False, "autoscale": False}


def stage(
    paths: list[list[int]],
    params: dict | None = None,
    own_tok: int | list[int] = 100,
    router: str = "preble",
    **more,
) -> Stage:
    """Requests for these parts of documents, each with a question of its own, answers of four tokens."""
    own = own_tok if isinstance(own_tok, list) else [own_tok] * len(paths)
    workload = prompts(paths, SYMBOL_TOK, own, [4] * len(paths))
    return Stage(workload, router, params, **more)


# --- times --------------------------------------------------------------------------------------------------


@small
@pytest.mark.parametrize(
    ("tokens", "context_tok", "seconds"),
    [
        (100, 100, 0.02480), (192, 192, 0.03105), (512, 512, 0.06672), (1835, 1835, 0.24037),
        (275, 1835, 0.03600), (2285, 2285, 0.30062), (3871, 3871, 0.52086), (9865, 9865, 1.46374),
        (23474, 23474, 4.25364), (2000, 23000, 0.40972),
    ],
)  # fmt: skip
def test_the_regression_of_the_released_code_gives_its_test_vectors(tokens, context_tok, seconds):
    # Five digits are given; of 9,865 tokens the last is one more than the formula gives.
    assert regression_s(A6000, tokens, context_tok, True) == pytest.approx(seconds, abs=5.2e-6)


@small
def test_the_parabola_never_falls_below_a_step_of_few_tokens():
    """Unclamped, 383 tokens would take -16 ms."""
    floor_s = regression_s(A6000, 1, 2000, True)
    clamped = [regression_s(A6000, n, 2000, True) for n in range(192, 384)]
    assert min(clamped) == floor_s == clamped[-1]
    lines = [regression_s(A6000_INTERPOLATED, n, 2000, True) for n in range(192, 385)]
    assert np.all(np.diff(lines) > 0)


# --- the lecture's worked example ---------------------------------------------------------------------------


@small
def test_the_lectures_exercise_three():
    """P9: replica 2 has system prompt and document, the others the system prompt; 15 times faster there."""
    workload = prompts(
        [[0, 2], [0, 3], [0, 1], [0, 4], [0, 1]],
        [13, 21_000, 21_000, 21_000, 21_000],
        [1987] * 5,
        [16] * 5,
    )
    a6000 = StepTime.roofline("a6000", "mistral-7b")
    scene = Stage(workload, "e2", step=a6000, kv_tok=219_089)
    assert [scene.send(i, 0.1 * i) for i in range(4)] == [0, 1, 2, 3]
    assert scene.send(4, 1.0) == 2
    assert np.isinf(scene.view.score[[0, 1, 3]]).all()  # not even candidates
    there_s = prefill_ps(scene.view, CLUSTER, 1987, 1987) * 1e-12
    elsewhere_s = prefill_ps(scene.view, CLUSTER, 22_987, 22_987) * 1e-12
    assert round(there_s, 2) == 0.27
    assert elsewhere_s > 4
    assert 15 < elsewhere_s / there_s < 16


# --- algorithm 1 --------------------------------------------------------------------------------------------


@small
@pytest.mark.parametrize(("own_tok", "choice"), [(1019, 0), (1020, 1), (1021, 1)])
def test_as_much_cached_as_missed_is_explored(own_tok, choice):
    """1,020 tokens of the second prompt are cached on replica 0; the strict inequality decides at 1,020."""
    scene = stage([[SYSTEM, DOCUMENT]] * 2, QUIET, own_tok=[100, own_tok])
    assert scene.send(0, 0.0) == 0
    assert scene.send(1, 0.1) == choice


@small
@pytest.mark.parametrize(("longest", "candidates"), [("deepest", {0}), ("largest", {0, 1})])
def test_candidates_have_the_deepest_node_or_the_largest(longest, candidates):
    """Replica 0 has the document and a part below it; replica 1, where load is less, the document only."""
    paths = [[SYSTEM, DOCUMENT, PART], [SYSTEM, OTHER], [SYSTEM, DOCUMENT], [SYSTEM, DOCUMENT, PART]]
    scene = stage(paths, QUIET | {"longest": longest}, own_tok=[2000, 30, 1030, 10], replicas=2)
    assert [scene.send(i, 0.1 * i) for i in range(3)] == [0, 1, 1]
    scene.send(3, 1.0)
    assert set(np.flatnonzero(np.isfinite(scene.view.score)).tolist()) == candidates


@small
def test_the_heaviest_replica_is_spared_while_loads_are_apart():
    paths = [[SYSTEM, DOCUMENT]] * 4
    still = stage(paths, QUIET)
    assert [still.send(i, 0.1 * i) for i in range(4)] == [0, 0, 0, 0]
    moved = stage(paths, QUIET | {"rebalance": True})
    assert [moved.send(i, 0.1 * i) for i in range(4)] == [0, 1, 2, 3]
    lenient = stage(paths, QUIET | {"rebalance": True, "th_bal": 1e6}, replicas=2)
    assert [lenient.send(i, 0.1 * i) for i in range(4)] == [0, 1, 0, 1]  # any load is more than none


@small
def test_an_explored_request_goes_where_most_requests_decode():
    paths = [[SYSTEM, DOCUMENT], [SYSTEM, PART], [SYSTEM, OTHER], [SYSTEM, 4]]
    for pairing, choice in ((False, 3), (True, 0)):
        scene = stage(paths, QUIET | {"pairing": pairing})
        assert [scene.send(i, 0.1 * i) for i in range(3)] == [0, 1, 2]
        scene.first_token(0, 0.5)
        assert scene.send(3, 0.6) == choice
    scene = stage(paths, QUIET | {"pairing": True, "imbal_r": 1.0})
    assert [scene.send(i, 0.1 * i) for i in range(3)] == [0, 1, 2]
    scene.first_token(0, 0.5)
    assert scene.send(3, 0.6) == 3  # all of one is not more than all


@small
def test_an_explored_request_may_go_where_most_tokens_hit():
    paths = [[SYSTEM, DOCUMENT], *[[SYSTEM, DOCUMENT]] * 5, [SYSTEM, OTHER]]
    params = QUIET | {"pairing": True, "decode_ratio": "hits", "imbal_r": 0.7}
    scene = stage(paths, params, replicas=2)
    assert [scene.send(i, 0.1 * i) for i in range(6)] == [0] * 6
    assert scene.send(6, 0.6) == 0  # 5 x 1,020 of 6 x 1,120 tokens, 0.76


@small
def test_load_leaves_with_the_window():
    paths = [[SYSTEM, DOCUMENT], [SYSTEM, PART], [SYSTEM, OTHER]]
    scene = stage(paths, QUIET | {"horizon_s": 1.0}, replicas=2)
    assert [scene.send(0, 0.0), scene.send(1, 0.5)] == [0, 1]
    assert scene.view.real[0] > scene.view.real[1] == 0.0
    assert scene.send(2, 1.0) == 0  # what was sent a whole window ago no longer counts
    assert scene.view.real[1] > scene.view.real[0] == 0.0


@small
def test_making_room_costs_by_what_others_still_ask_for():
    """Replica 0 would evict a document that one of its two requests has, replica 1 one that nobody has."""
    params = QUIET | {"load_cost": False, "prefill_cost": False, "horizon_s": 10.0}
    paths = [[DOCUMENT], [4], [SYSTEM, OTHER], [SYSTEM, PART]]
    scene = stage(paths, params, replicas=2, kv_tok=3000)
    scene.send(0, 0.0)
    assert scene.at[0] == 0
    scene.send(1, 0.0)
    assert scene.at[1] == 1  # making room on replica 0 would cost the document
    costs = scene.view.score.tolist()
    assert costs[0] > 0.0
    assert costs[1] == 0.0


# --- autoscaling --------------------------------------------------------------------------------------------


def crowd(params: dict, waits_s: list[float], below: list[list[int]]) -> tuple[Stage, list[int]]:
    """Requests for one document, a second apart in a window of 20 s, that wait so long; then some more."""
    paths = [[SYSTEM, DOCUMENT]] * len(waits_s) + [[SYSTEM, DOCUMENT, *path] for path in below]
    scene = stage(paths, {**QUIET, "autoscale": True, "horizon_s": 20.0, **params}, replicas=3)
    for i, wait_s in enumerate(waits_s):
        scene.serve(i, float(i), wait_s)
    first = len(waits_s)
    return scene, [scene.serve(first + k, first + 0.1 * k) for k in range(len(below))]


@small
def test_a_prefix_whose_waits_doubled_gets_another_replica_and_is_split():
    parts = [[PART], [OTHER], [PART], [OTHER], [PART]]
    _, choices = crowd({}, [1.0] * 10 + [2.0] * 10, parts)
    assert choices == [1, 0, 1, 0, 1]  # the last of the crowd was the first of the split, on replica 0
    _, choices = crowd({"autoscale": False}, [1.0] * 10 + [2.0] * 10, parts)
    assert choices == [0] * 5
    _, choices = crowd({}, [1.0] * 10 + [1.9] * 10, parts)
    assert choices == [0] * 5
    _, choices = crowd({"least_wait_s": 3.0}, [1.0] * 10 + [2.0] * 10, parts)
    assert choices == [0] * 5


@small
def test_questions_that_share_nothing_more_are_split_one_by_one():
    _, choices = crowd({}, [1.0] * 10 + [2.0] * 10, [[]] * 30)
    assert choices[:10] == [1] + [0] * 9  # by load: the first on replica 1 computes the document there
    assert choices[10:] == [1, 0] * 10


@small
def test_a_split_ends_with_the_last_request_for_its_prefix():
    scene, _ = crowd({}, [1.0] * 10 + [2.0] * 10, [[PART], [OTHER], [PART]])
    assert scene.twin.splits
    scene = stage([[SYSTEM, DOCUMENT]] * 23, QUIET | {"autoscale": True, "horizon_s": 20.0}, replicas=3)
    for i in range(20):
        scene.serve(i, float(i), 1.0 if i < 10 else 2.0)
    assert [scene.serve(20, 20.0), scene.serve(21, 20.1)] == [1, 0]
    scene.serve(22, 60.0)
    assert not scene.twin.splits


# --- notices ------------------------------------------------------------------------------------------------


@small
def test_a_notice_takes_the_replica_off_and_may_be_ignored():
    paths = [[SYSTEM, DOCUMENT], [SYSTEM, OTHER], [SYSTEM, DOCUMENT]]
    for notices, choice in ((True, 1), (False, 0)):
        scene = stage(paths, QUIET | {"notices": notices}, replicas=2)
        assert [scene.send(0, 0.0), scene.send(1, 0.1)] == [0, 1]
        scene.finish_all([0, 1], 0.4)
        scene.report(0, 1, 0, 1000, 0.5)
        scene.report(0, 1, 0, 0, 1.0)
        assert scene.send(2, 1.1) == choice


@small
def test_a_notice_does_not_take_off_what_a_request_in_flight_will_compute():
    """The document is evicted while requests 2 and 3 queue for it; when they have ended, a notice counts."""
    paths = [[SYSTEM, DOCUMENT], [SYSTEM, OTHER], [SYSTEM, DOCUMENT], [SYSTEM, DOCUMENT], [SYSTEM, DOCUMENT]]
    scene = stage(paths, QUIET, replicas=2)
    assert [scene.send(0, 0.0), scene.send(1, 0.1)] == [0, 1]
    scene.finish_all([0, 1], 0.4)
    scene.report(0, 1, 0, 1000, 0.5)
    assert scene.send(2, 1.0) == 0
    scene.report(0, 1, 0, 0, 1.1)
    assert scene.send(3, 1.2) == 0
    scene.finish_all([2], 1.3)
    scene.report(3, 1, 0, 1000, 1.31)
    scene.report(3, 1, 0, 0, 1.32)  # request 3 is still there
    scene.finish_all([3], 1.34)
    scene.report(3, 1, 0, 1000, 1.35)
    scene.report(3, 1, 0, 500, 1.36)  # a part lost is a node lost
    assert scene.send(4, 1.4) == 1


@small
@pytest.mark.parametrize(("mean", "expected"), [("replica", [45.0, 7.0]), ("all", [26.0, 26.0])])
def test_the_mean_answer_is_of_the_replica_or_of_all(mean, expected):
    workload = prompts([[SYSTEM, DOCUMENT], [SYSTEM, OTHER]], SYMBOL_TOK, [100, 100], [45, 7])
    scene = Stage(workload, "preble", QUIET | {"output_mean": mean}, replicas=2)
    assert [scene.serve(0, 0.0), scene.serve(1, 0.1)] == [0, 1]
    of_all = scene.view.params[OUTPUT_MEAN] == 1
    assert [mean_output_tok(scene.view, r, of_all, 1.0) for r in (0, 1)] == expected


@small
def test_evictions_reach_the_tree_as_late_as_the_view_is():
    """In a cluster: what is ignored or told late makes the router follow caches that are gone."""
    workload = make("long_documents", requests=250, rate_rps=1.0, documents=60, seed=3)
    cluster = Cluster(2, engine="lecture")
    hits = [
        simulate(workload, cluster, "preble", params | QUIET, view=view).figures["hit_rate"]
        for params, view in (({}, "own"), ({}, "delayed(60)"), ({"notices": False}, "own"))
    ]
    assert len(set(hits)) == 3


@small
@pytest.mark.parametrize("kind", ["agentic", "group_sampling", "embodied_agent", "long_documents"])
def test_a_report_names_the_runs_of_the_tree_that_lie_in_the_engines(kind):
    """Also where later prompts contain earlier answers: block by block, as the two have every prompt."""
    workload = make(kind, requests=200)
    engine = compile_prompts(workload, 16)
    ptr, path, run_blk, _ = tree_prompts(workload, 16)
    part_ptr, part = parts_of_runs(workload, 16, ptr, path, run_blk)
    assert len(part_ptr) == len(engine.run_blk) + 1
    there = {}  # engine's run and block -> run of the tree
    for run in range(len(engine.run_blk)):
        for node, begin, end in part[part_ptr[run] : part_ptr[run + 1]].tolist():
            assert 0 <= begin < end <= engine.run_blk[run]
            there.update({(run, k): node for k in range(begin, end)})
    for i in range(len(workload)):
        runs = engine.path[engine.path_ptr[i] : engine.path_ptr[i + 1]].tolist()
        nodes = path[ptr[i] : ptr[i + 1]]
        blocks = [(run, k) for run in runs for k in range(engine.run_blk[run])]
        expected = np.repeat(nodes, run_blk[nodes]).tolist()
        assert [there[block] for block in blocks[: len(expected)]] == expected
    assert (np.bincount(part[:, 0], part[:, 2] - part[:, 1]) == run_blk).all()


# --- the twin -----------------------------------------------------------------------------------------------


def drawn_params(rng: random.Random) -> dict:
    """Parameters of `preble` that let small scenes reach every branch."""
    switches = ("attend_cached", "load_cost", "eviction_cost", "prefill_cost", "always_full", "notices")
    return {
        **{name: rng.random() < 0.7 for name in (*switches, "rebalance", "autoscale", "pairing")},
        "exploit": rng.random() < 0.9,
        "horizon_s": rng.choice([0.5, 2.0, 10.0]),
        "times": rng.choice(["cluster", "cluster", "a6000", "a6000_interpolated", "a100", "llama_70b_h100"]),
        "longest": rng.choice(["deepest", "largest"]),
        "decode_ratio": rng.choice(["outstanding", "hits"]),
        "output_mean": rng.choice(["replica", "all"]),
    }


@small
@pytest.mark.parametrize("router", ["preble", "e2"])
def test_the_kernel_decides_as_its_twin(router):
    for seed in range(30):
        rng = random.Random(f"{router} {seed}")
        workload = random_prompts(rng, 60)
        engine = rng.choice(ENGINES)
        kv_tok = rng.choice([6400, 16_000, 100_000])
        replicas = rng.choice([1, 2, 3, 5, 65])
        params = drawn_params(rng)
        play(Stage(workload, router, params, replicas=replicas, engine=engine, kv_tok=kv_tok), rng)
