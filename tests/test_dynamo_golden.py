"""Dynamo's KV router as NVIDIA's own replay of it decides (ai-dynamo-runtime 1.6.1), decision by decision.

Steps take a fixed time: 100 ms if anybody prefills, 10 ms else. Ties are broken at random, so the records'
decisions are replayed, and each must have been of least cost.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

import fastsim
from fastsim import Cluster, simulate
from fastsim.cluster.routers import ROUTERS, dynamo
from fastsim.cluster.routers.view import PROMPT_TOK, SESSION
from fastsim.cluster.step_time import StepTime
from fastsim.workloads import Workload, load
from tests.report_scenes import Ask, workload

STEP = StepTime.fixed(0.1, 0.01)
SYSTEM = (("system", 1024),)


def cluster(replicas: int) -> Cluster:
    """Workers of the records."""
    return Cluster(replicas, block_tok=16, kv_tok=400_000, max_seqs=256, max_batch_tok=8192, step_time=STEP)


@contextmanager
def recorded_choices() -> Iterator[str]:
    """A router that reckons as `dynamo_kv` and sends each request to the replica that its session names."""
    entry = ROUTERS["dynamo_kv"]
    weigh, start = dynamo._weigh, dynamo._start

    def recorded(view, request):
        """Reckon, and do what the record says."""
        weigh(view, request)
        r = view.prompt[SESSION]
        start(view, request, r, view.prompt[PROMPT_TOK] - view.match[r])
        return r

    fastsim.router(
        "dynamo_recorded",
        needs=entry.needs,
        params=entry.params,
        view=entry.view,
        heard=entry.heard.py_func if hasattr(entry.heard, "py_func") else entry.heard,
        memory=entry.memory,
        real=entry.real,
        count=entry.count,
        tree=entry.tree,
    )(recorded)
    yield "dynamo_recorded"
    del ROUTERS["dynamo_recorded"]


def test_incomplete_blocks_are_no_decode_blocks():
    """Prompts of 24, 48, 24 and 24 tokens on two workers, with 1, 3, 1 and 1 full blocks.

    The last joins the first. With incomplete blocks there are 2, 3, 2 and 2, and it would join the second.
    """
    asked = workload(
        Ask(at, own_tok=tok, output_tok=2000) for at, tok in ((0.0, 24), (1.0, 48), (2.0, 24), (3.0, 24))
    )
    for replicate in range(8):  # the first is anywhere
        first, *others = simulate(asked, cluster(2), "dynamo_kv", replicate=replicate).columns["replica"]
        assert others == [1 - first, first, first]


def test_cache_events_are_published_when_a_step_ends():
    """A second request in the first one's step sees none of the 1,024 tokens that both have, after it all."""
    for router in ("dynamo_kv", "dynamo_2025", "epp_precise", "vllm_kv_aware", "prefix_affinity"):
        caches = "events" if router == "prefix_affinity" else "native"  # the lecture's knows more
        for at, seen in ((0.05, 0), (0.0999, 0), (0.1, 1024)):
            asked = workload([Ask(0.0, SYSTEM, 976, 50), Ask(at, SYSTEM, 976, 50)])
            for fast in (True, False):
                asked_of = replace(cluster(2), fast_forward=fast)
                rows = simulate(asked, asked_of, router, record=True, caches=caches).routes.filter(request=1)
                assert rows["match_tok"].max() == seen, (router, at)


def trace_and_record(shared_path) -> tuple[Workload, dict[str, np.ndarray]]:
    """The trace, with the worker that Dynamo chose as session; the record's columns, in the trace's order."""
    with gzip.open(shared_path("golden/dynamo/agg_ref_8w_kv_router_fixed.json.gz")) as file:
        record = json.load(file)
    rows = np.array(record["rows"])
    rows = rows[np.argsort(rows[:, record["columns"].index("arrival_time_ms")], kind="stable")]
    columns = dict(zip(record["columns"], rows.T, strict=True))
    asked = load(
        shared_path("traces/ref_fixed_block64.jsonl.gz"), format="mooncake", block_tok=64, time_unit="ms"
    )
    arrival_s = columns["arrival_time_ms"] / 1e3  # rounded, and the first is at 0
    assert np.abs(arrival_s + asked.arrival_s[0] - asked.arrival_s).max() < 1e-6
    chosen = columns["decode_worker_idx"].astype(np.int64)
    return replace(asked, arrival_s=arrival_s, session=chosen), columns


def test_every_recorded_choice_was_of_least_cost_by_the_overlaps_recorded(shared_path):
    """10,000 decisions, and what followed of them: each time, each hit, what the router saw of each cache."""
    asked, record = trace_and_record(shared_path)
    with recorded_choices() as router:
        result = simulate(asked, cluster(8), router, record=True)
    every = np.arange(len(asked))
    score, match_tok = (result.routes[name].to_numpy().reshape(-1, 8) for name in ("score", "match_tok"))
    assert (score[every, asked.session] - score.min(axis=1) > 1e-9).sum() == 0
    np.testing.assert_array_equal(match_tok[every, asked.session], 16 * record["selected_overlap_blocks"])
    np.testing.assert_array_equal(match_tok.max(axis=1), 16 * record["best_available_overlap_blocks"])
    np.testing.assert_array_equal(result.columns["hit_tok"], record["reused_input_tokens"])
    for name, column in (("first_token_s", "first_token_ms"), ("done_s", "last_token_ms")):
        np.testing.assert_allclose(result.columns[name] * 1e3, record[column], rtol=0.0, atol=1e-6)
