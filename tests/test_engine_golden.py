"""The engine does what vLLM's scheduler did: every golden record, step by step and in jumps."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from fastsim import Cluster, simulate
from fastsim.cluster.simulate import Result
from fastsim.workloads import load
from tests.cluster_runs import serve
from tests.twins import golden

small = pytest.mark.small

every_record = pytest.mark.parametrize("path", golden.engine_files(), ids=lambda path: path.stem)
every_mode = pytest.mark.parametrize("fast_forward", [True, False])


@cache
def served(path: Path, fast_forward: bool) -> tuple[dict, Result]:
    """A golden record, served once in either mode."""
    record = golden.load(path)
    return record, serve(record, fast_forward=fast_forward)


@small
@every_record
@every_mode
def test_every_request_is_served_as_recorded(path, fast_forward):
    record, result = served(path, fast_forward)
    columns = ("first_token_s", "done_s", "hit_tok", "preemptions")
    rows = result.requests.select(columns).rows()
    assert golden.differences(record, rows) == []


@small
@every_record
@every_mode
def test_totals_are_as_recorded(path, fast_forward):
    record, result = served(path, fast_forward)
    totals = {
        "steps": result.replicas["steps"].sum(),
        "preemptions": result.replicas["preemptions"].sum(),
        "scheduled_tokens": result.replicas["computed_tok"].sum(),
        "hit_tokens": result.requests["hit_tok"].sum(),
        "prompt_tokens": result.requests["prompt_tok"].sum(),
    }
    assert totals == record["totals"]


@small
@every_record
def test_jumps_and_steps_give_the_same_bits(path):
    (_, jumps), (_, steps) = served(path, True), served(path, False)
    assert jumps.requests.equals(steps.requests)
    for name, totals in jumps.replicas.items():
        np.testing.assert_array_equal(totals, steps.replicas[name])
    assert jumps.copies == steps.copies
    assert jumps.events <= steps.events


@small
def test_jumps_spare_events():
    """So that the two modes are known to be two: a long decode alone is one event, not a hundred."""
    record = {
        "segments": {"1": 8},
        "requests": [{"arrival_s": 0.0, "path": [1], "output_tokens": 100}],
        "engine": {"block_size": 4, "num_blocks": 40, "max_num_seqs": 2, "max_num_batched_tokens": 16},
        "step_ms": {"kind": "fixed", "prefill": 2.0, "decode": 1.0},
    }
    jumps, steps = serve(record), serve(record, fast_forward=False)
    assert jumps.replicas["steps"] == steps.replicas["steps"] == 100
    assert jumps.events < 5 < 100 <= steps.events
    assert jumps.requests.equals(steps.requests)


@pytest.mark.parametrize("block_tok", [16, 100])
@pytest.mark.parametrize("router", ["round_robin", "least_work", "cache_aware_guard"])
def test_jumps_and_steps_give_the_same_bits_on_a_real_trace(shared_path, router, block_tok):
    """Roofline times, prompts of thousands of tokens, memory that is short: sizes no random case has."""
    workload = load(shared_path("traces/mooncake_conversation.jsonl.gz"), limit=6_000, rate_scale=2.0)
    view = {"least_work": "periodic(0.7)"}.get(router, "live")
    jumps, steps = (
        simulate(
            workload,
            Cluster(6, kv_tok=150_000, block_tok=block_tok, fast_forward=fast_forward),
            router,
            view=view,
        )
        for fast_forward in (True, False)
    )
    assert jumps.requests.equals(steps.requests)
    assert jumps.copies == steps.copies
    for name, totals in jumps.replicas.items():
        np.testing.assert_array_equal(totals, steps.replicas[name])
    assert totals_of(jumps, "evicted_blocks") > 1_000
    assert jumps.events < steps.events / 2


def totals_of(result: Result, name: str) -> int:
    return int(result.replicas[name].sum())
