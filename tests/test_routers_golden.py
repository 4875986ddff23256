"""Decisions are those of real routers: sglang-router and vllm-router on the same requests and finishes."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from fastsim.workloads import Workload
from tests.router_replay import Replay
from tests.twins import golden

# Policy of each router, its parameters beside the record's, and how a prompt's text is cut into tokens.
POLICIES = {
    "sglang-router": ("sglang_cache_aware_lowest_load", {"chars_per_tok": 1.0}, list),
    "vllm-router": ("vllm_cache_aware", {}, str.split),
}
RECORDS = golden.router_files()
every_record = pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
OWN = [path for path in RECORDS if path.is_relative_to(Path(__file__).parent)]


@cache
def record_of(path: Path) -> dict:
    return json.loads(gzip.decompress(path.read_bytes()))


def workload_of(prompts: list[list[str]]) -> Workload:
    """Requests of which each word (or character) of the prompt is a token."""
    number: dict[str, int] = {}
    symbols = [number.setdefault(word, len(number)) for prompt in prompts for word in prompt]
    lengths = np.array([len(prompt) for prompt in prompts])
    return Workload(
        name="record",
        arrival_s=np.arange(len(prompts)) * 1e-3,  # evictions are far off
        prompt_tok=lengths,
        output_tok=np.ones(len(prompts), np.int64),
        symbol_ptr=np.concatenate(([0], np.cumsum(lengths))),
        symbols=np.array(symbols),
        symbol_tok=np.ones(len(number), np.int64),
    )


def decisions(record: dict, router: str, params: dict, cut) -> list[tuple[int, int]]:
    """What was chosen and what we choose, request by request; loads follow the record, trees follow us."""
    events = record["events"]
    replay = Replay(
        workload_of([cut(event[2]) for event in events if event[0] == "arrive"]),
        record["workers"],
        router,
        params,
    )
    sent: dict[str, int] = {}
    pairs = []
    for event in events:
        if event[0] == "finish":
            replay.change(sent[event[1]], -1)
            continue
        pairs.append((event[3], replay.decide(len(pairs))))
        sent[event[1]] = event[3]
        replay.change(event[3], 1)
    return pairs


@every_record
def test_every_decision_is_the_real_routers(path):
    record = record_of(path)
    router, more, cut = POLICIES[record["router"].split()[0]]
    pairs = decisions(record, router, {**record["settings"], **more}, cut)
    assert len(pairs) == sum(event[0] == "arrive" for event in record["events"]) > 0
    assert [i for i, (theirs, ours) in enumerate(pairs) if theirs != ours] == []


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.stem)
def test_records_tell_the_two_routers_and_the_older_fallback_apart(path):
    """Or the test above would pass for another policy, too."""
    record = record_of(path)
    right, _, cut = POLICIES[record["router"].split()[0]]
    settings = record["settings"]
    others = {"sglang_cache_aware_smallest_tree", *(name for name, _, _ in POLICIES.values())} - {right}
    for other in others:
        pairs = decisions(record, other, settings, cut)
        assert sum(theirs != ours for theirs, ours in pairs) > 20, other
