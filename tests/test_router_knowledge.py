"""Everything routers may know is as the twin knows it, shown by policies that take it all into account."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest

from fastsim.errors import InputError
from tests.cluster_runs import serve
from tests.odd_router import VARIANTS, odd_params, odd_routers
from tests.router_cases import routed_case, tiny_pools, unlike_its_twin

small = pytest.mark.small


def odd_cases(seeds: range) -> list[dict]:
    """Cases of policies that refuse, hold and send along as they like."""
    made = []
    for seed in seeds:
        for name in VARIANTS:
            rng = random.Random(seed)
            often = {
                "rejects": rng.choice([0, 0, 100]),
                "holds": rng.choice([0, 0, 300, 600]),
                "sends": rng.choice([0, 0, 300, 900]),
            }
            few = {"replicas": rng.choice([1, 2, 3])} if rng.random() < 0.5 else {}
            made.append(routed_case(name, seed, router_params=odd_params(name, **often), **few))
    return made


def crowd(seed: int) -> dict:
    """Requests that come all at once and run together: no reports are ever so many."""
    rng = random.Random(f"crowd-{seed}")
    name = rng.choice(["odd", "odd", "odd_plain"])
    often = {"holds": rng.choice([0, 600]), "sends": rng.choice([0, 900])}
    case = routed_case(name, seed, router_params=odd_params(name, **often), replicas=rng.choice([1, 1, 2]))
    rows = rng.choices(case["requests"], k=60)
    instants = sorted(rng.choice([0.0, 0.0, 0.01]) for _ in rows)
    rows = [{**row, "arrival_s": at} for row, at in zip(rows, instants, strict=True)]
    many = {
        "max_num_seqs": 64,
        "max_num_batched_tokens": 4_000,
        "num_blocks": case["engine"]["num_blocks"] + 500,
    }
    delay_s = rng.choice([0.001, 0.1, 3.0])
    return {**case, "requests": rows, "engine": {**case["engine"], **many}, "view": f"delayed({delay_s})"}


def long_answers(seed: int) -> dict:
    """Runs of many decode steps in a full memory, while blocks come along with other requests."""
    rng = random.Random(f"long-answers-{seed}")
    name = rng.choice(["odd", "odd_deaf"])
    settings = {
        "router_params": odd_params(name, sends=rng.choice([500, 900])),
        "replicas": rng.choice([1, 2]),
        "routers": 1,
        "caches": "native",
        "view": rng.choice(["live", "live", "delayed(0.005)"]),
    }
    case = routed_case(name, seed, engine="vllm", **settings)
    rows = [{**row, "output_tokens": rng.randint(50, 400)} for row in case["requests"]]
    full = int(rng.choice([1.0, 1.2, 1.6]) * max(_tok(case, row) for row in rows))
    full = full // case["engine"]["block_size"] + 4
    step_s = (sum(case["step_ms"]["pieces"][0][0][:3]) + 1000) / 1e15
    at_s = 0.0
    for row in rows:
        row.pop("answer_segment", None)
        row["arrival_s"] = at_s
        at_s += rng.choice([1, 7, 30, 100]) * step_s
    engine = {"num_blocks": full, "max_num_seqs": 8, "max_num_batched_tokens": 4_000}
    return {**case, "requests": rows, "engine": {**case["engine"], **engine}}


def _tok(case: dict, row: dict) -> int:
    spelt_tok = sum(case["segments"][str(name)] for name in row["path"])
    return row.get("prompt_tokens", spelt_tok) + row["output_tokens"]


@small
def test_everything_is_as_the_twin_knows_it():
    with odd_routers():
        cases = [*odd_cases(range(6)), *map(crowd, range(8)), *map(long_answers, range(10, 20))]
        assert [each for case in cases for each in unlike_its_twin(case)] == []


def test_everything_is_as_the_twin_knows_it_in_many_cases():
    with odd_routers():
        cases = [*odd_cases(range(6, 60)), *map(crowd, range(8, 24)), *map(long_answers, range(36, 60))]
        assert [each for case in cases for each in unlike_its_twin(case)] == []


def test_the_cases_are_of_every_kind_and_let_everything_grow():
    """Or the tests above would be silent about what they leave out."""
    with odd_routers():
        cases = odd_cases(range(6, 60))
        kinds = {(case["view"].split("(")[0], case["caches"], case["engine"]["kind"]) for case in cases}
        assert len(kinds) > 25
        with tiny_pools() as grown:
            for case in cases[:40]:
                with suppress(InputError):  # requests may be held back for ever
                    serve(case)
    assert {"news", "ext", "table", "trees"} <= set(grown)
