"""The production stack's policies against their twins over long replays, and its public reports."""

from __future__ import annotations

import numpy as np
import pytest

from fastsim.cluster.routers import get
from tests.router_replay import Replay, by_hand, disagreements, draw, make_scene

small = pytest.mark.small

PARAMS = {
    "production_stack_session": {},
    "production_stack_prefixaware": {
        "min_match_length": [0, 0, 8, 40],
        "chunk_chars": [1, 8, 40],
        "chars_per_tok": [1.0, 4.0],
        "insert_on_fallback": [True, False],
    },
    "production_stack_kvaware": {"threshold_tok": [0, 10, 2000], "chunk_tok": [1, 7, 256]},
    "production_stack_loadaware": {"beta": [0.0, 0.3, 1.0], "chunk_tok": [1, 7]},
}
SECOND = 10**12


@small
@pytest.mark.parametrize("router", list(PARAMS))
def test_every_decision_of_a_replay_is_the_twins(router):
    for seed in range(25):
        scene = make_scene(seed, mean_gap_s=[0.05, 3.0][seed % 2])  # the rates' window is a minute
        params = draw(seed, PARAMS[router])
        assert disagreements(scene, router, params) == [], (seed, params)


@small
def test_defaults_are_those_of_the_release():
    spec = get("production_stack_prefixaware").spec({})
    assert (spec.chunk_chars, spec.min_match_length, spec.insert_on_fallback) == (128, 0, True)
    assert get("production_stack_kvaware").spec({}).threshold_tok == 2000
    assert get("production_stack_loadaware").spec({}).beta == 1.0


@small
def test_without_a_session_the_first_engine_that_never_had_a_request_or_had_fewest_in_a_minute():
    workload = by_hand(*([k] for k in range(7)))
    replay = Replay(workload, 3, "production_stack_session", {})
    at_s = [0, 1, 2, 3, 61, 62.5, 63]
    # Three engines never had any; then all have one; at 61 s the first's is over, at 62.5 s the others' are.
    assert [replay.decide(i, round(s * SECOND)) for i, s in enumerate(at_s)] == [0, 1, 2, 0, 0, 1, 2]


@small
def test_a_last_short_chunk_matches_prompts_that_end_there_only():
    """Prompts of 3 whole chunks and a quarter; a match of 3 is too short here, so that the rates decide."""
    whole = list(range(13))
    workload = by_hand(whole, [*whole[:12], 20], whole, [*whole, 13], whole[:12])
    params = {"chunk_chars": 40, "chars_per_tok": 1.0, "min_match_length": 150}
    replay = Replay(workload, 4, "production_stack_prefixaware", params)
    assert [replay.decide(request) for request in range(5)] == [0, 1, 0, 2, 3]


@small
def test_nothing_is_learnt_from_short_matches_before_the_fix():
    """production-stack issue 990: with a minimum match, affinity never started."""
    workload = by_hand(*([0, 1, 2, 3] for _ in range(40)), symbol_tok=32)
    for fixed in (False, True):
        params = {"min_match_length": 128, "insert_on_fallback": fixed}
        replay = Replay(workload, 4, "production_stack_prefixaware", params)
        chosen = [replay.decide(request, request * SECOND) for request in range(40)]
        assert np.bincount(chosen, minlength=4).tolist() == ([40, 0, 0, 0] if fixed else [10] * 4)


@small
def test_a_trie_that_is_never_cut_grows_with_every_prompt():
    """production-stack issue 687: memory grew until the router was killed."""
    n = 50
    replay = Replay(by_hand(*([k] for k in range(n)), symbol_tok=64), 2, "production_stack_prefixaware", {})
    for request in range(n):
        replay.decide(request)
    assert replay.view.list[:, 2].sum() == 64 * n


@small
def test_the_first_holder_counts_not_the_best():
    replay = Replay(by_hand([0], [1], symbol_tok=4000), 3, "production_stack_kvaware", {})
    replay.view.match[:] = 0, 2304, 4000
    assert replay.decide(0) == 1
    replay.view.match[:] = 0, 1792, 4000  # more than 2,000 tokens are missing there: by rates
    assert replay.decide(1) == 0


@small
def test_a_cold_idle_engine_beats_a_warm_one_that_is_loaded():
    """A full hit weighs as much as twice the mean load, at beta 1."""
    replay = Replay(by_hand([0], [1], symbol_tok=1024), 2, "production_stack_loadaware", {})
    replay.view.match[:] = 1024, 0
    replay.change(0, 2)
    replay.change(1, 1)
    assert replay.decide(0) == 0
    np.testing.assert_allclose(replay.view.score, [1 - 0.5 / 1.5, 0.5 / 1.5])
    replay.change(0, 2)
    assert replay.decide(1) == 1
    np.testing.assert_allclose(replay.view.score, [1 - 1.5 / 2.5, 1.5 / 2.5])
