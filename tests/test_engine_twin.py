"""The engine equals its slow twin bit for bit, on random cases that look for trouble."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest

from fastsim.cluster._state import BITS
from tests.cluster_runs import differences, serve, serve_slowly
from tests.twins.cases import PLAIN_ROUTERS, make_case

ENGINES = ["vllm", "lecture"]
every_engine = pytest.mark.parametrize("engine", ENGINES)
small = pytest.mark.small

FEW, MANY = range(120), range(120, 1_000)  # seeds of the cases run uncompiled, too, and of the others


def cases(seeds: range, engine: str) -> Iterator[dict]:
    for seed in seeds:
        yield make_case(seed, engine)


def failures(cases: Iterator[dict]) -> list[str]:
    """Every difference of any case in either mode, and of the modes from each other."""
    found = []
    for case in cases:
        outcome = serve_slowly(case)
        results = {fast: serve(case, fast_forward=fast) for fast in (True, False)}
        for fast, result in results.items():
            wrong = differences(result, outcome)
            found += [f"seed {case['seed']}, fast_forward={fast}: {each}" for each in wrong]
        if not results[True].requests.equals(results[False].requests):
            found.append(f"seed {case['seed']}: the modes differ")
    return found


@small
@every_engine
def test_random_cases(engine):
    assert failures(cases(FEW, engine)) == []


@every_engine
def test_many_random_cases(engine):
    assert failures(cases(MANY, engine)) == []


def encore(seed: int, engine: str) -> dict:
    """A case played several times over, so that caches and pools have a past."""
    case = make_case(seed, engine)
    rng = random.Random(f"encore-{engine}-{seed}")
    span_s = case["requests"][-1]["arrival_s"] + case["requests"][0]["arrival_s"]
    rows = []
    for k in range(rng.randint(2, 8)):
        for row in case["requests"]:
            rows.append({**row, "arrival_s": row["arrival_s"] + k * span_s})
            if rng.random() < 0.2:
                rows[-1].pop("answer_segment", None)
    rows.sort(key=lambda row: row["arrival_s"])
    return {**case, "requests": rows, "replicas": rng.choice([1, 2, 3, 5])}


@small
@every_engine
def test_long_lives(engine):
    assert failures(encore(seed, engine) for seed in range(20)) == []


@every_engine
def test_many_long_lives(engine):
    assert failures(encore(seed, engine) for seed in range(20, 150)) == []


def crowd(seed: int, engine: str) -> dict:
    """More replicas than one word of a mask holds, and routers that need the masks."""
    case = make_case(seed, engine)
    routers = ["prefix_affinity", "affinity_threshold", "cache_aware_guard", "least_work"]
    rng = random.Random(f"crowd-{engine}-{seed}")
    settings = {
        "replicas": rng.choice([BITS - 1, BITS, BITS + 1, 2 * BITS, 2 * BITS + 3]),
        "router_params": {},
    }
    return {**case, **settings, "router": rng.choice(routers)}


@every_engine
def test_more_replicas_than_a_mask_has_bits(engine):
    assert failures(crowd(seed, engine) for seed in range(60)) == []


def rush(seed: int, engine: str) -> dict:
    """A queue that hardly ends, in too little memory: bursts of questions about a few documents."""
    case = make_case(seed, engine)
    rng = random.Random(f"rush-{engine}-{seed}")
    tokens = dict(case["segments"])

    def segment(longest: int) -> int:
        tokens[str(len(tokens) + 1)] = rng.randint(1, longest)
        return len(tokens)

    documents = [[segment(8), segment(90)] for _ in range(rng.randint(2, 8))]
    rows, at_s = [], 0.0
    while len(rows) < 50:
        for _ in range(rng.randint(1, 30)):
            path = [*rng.choice(documents), segment(20)]
            rows.append({"arrival_s": at_s, "path": path, "output_tokens": rng.randint(1, 60), "shared": 2})
            rows[-1]["priority"] = rng.randint(0, 3)
        at_s += rng.choice([1e-12, 0.001, 0.005, 0.04])
    settings = dict(case["engine"])
    settings["num_blocks"] = int(rng.choice([1.1, 1.5, 3.0]) * 180) // settings["block_size"] + 4
    settings["max_num_batched_tokens"] = settings["max_num_seqs"] + rng.choice([30, 150, 600])
    settings["order"] = rng.choice(
        ["longest_prefix", "priority_groups", "priority_groups_cycling", "priority"]
    )
    settings["order_params"] = {}
    if settings["order"] == "priority":  # long prefills, which get what a victim gives back
        settings["max_num_batched_tokens"] = settings["max_num_seqs"] + 3
    if settings["order"] == "longest_prefix" and rng.random() < 0.5:
        settings["order_params"] = {"check_tok": rng.choice([-1, 32, 100]), "share_tok": rng.choice([5, 32])}
    return {**case, "segments": tokens, "requests": rows, "engine": settings, "replicas": rng.choice([1, 2])}


@small
@every_engine
def test_long_queues(engine):
    assert failures(rush(seed, engine) for seed in range(20)) == []


@every_engine
def test_many_long_queues(engine):
    assert failures(rush(seed, engine) for seed in range(20, 200)) == []


def marathon(seed: int) -> dict:
    """Answers of thousands of tokens: runs of decode steps that cross everything a run can cross."""
    case = make_case(seed)
    rng = random.Random(f"marathon-{seed}")
    requests = [{**row, "output_tokens": rng.randint(1, 3_000)} for row in case["requests"][:12]]
    for row in requests:
        row.pop("answer_segment", None)
    block_tok = case["engine"]["block_size"]
    longest = max(_prompt_tok(row, case["segments"]) + row["output_tokens"] for row in requests)
    num_blocks = int(rng.choice([1.0, 1.1, 1.5, 3.0]) * longest) // block_tok + 3
    return {**case, "requests": requests, "engine": {**case["engine"], "num_blocks": num_blocks}}


def _prompt_tok(row: dict, segments: dict) -> int:
    return row.get("prompt_tokens", sum(segments[str(name)] for name in row["path"]))


def test_long_answers():
    assert failures(marathon(seed) for seed in range(40)) == []


@every_engine
def test_the_cases_are_of_every_kind(engine):
    """Or the tests above would be silent about what they leave out."""
    drawn = list(cases(MANY, engine))
    live = {(case["router"], case["view"] == "live") for case in drawn}
    assert live == {(router, is_live) for router in PLAIN_ROUTERS for is_live in (True, False)}
    outcomes = [serve_slowly(case).totals() for case in drawn[:200]]
    sums = {name: sum(row[name] for totals in outcomes for row in totals) for name in outcomes[0][0]}
    assert sums["evicted"] > 1_000
    assert sums["hit_tok"] > 1_000
    assert sums["cached_copies_tok"] > sums["cached_tok"] or engine == "lecture"
    assert sums["preemptions"] > 100 or engine == "lecture"
    same_instant = sum(
        a["arrival_s"] == b["arrival_s"] for case in drawn for a, b in pairwise(case["requests"])
    )
    assert same_instant > 1_000


def test_the_comparison_can_fail():
    case = make_case(3)
    outcome = serve_slowly(case)
    other = {
        **case,
        "engine": {**case["engine"], "max_num_seqs": 1, "num_blocks": case["engine"]["num_blocks"] + 7},
    }
    assert differences(serve(case), outcome) == []
    assert differences(serve(other), outcome) != []
    result = serve(case)
    for name in ("hit_tok", "preemptions", "replica"):
        columns = {
            **result.columns,
            name: result.columns[name] + np.eye(1, len(result.columns[name]), dtype=int)[0],
        }
        assert len(differences(type(result)(columns, result.replicas, result.copies, 0, 0.0), outcome)) == 1
