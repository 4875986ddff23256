"""Decisions are those of real routers: sglang-router and vllm-router on the same requests and finishes."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from fastsim import Cluster
from fastsim.cluster._masks import change_load
from fastsim.cluster._workspace import new_state, sizes
from fastsim.cluster.knowledge import new_views, owners, settle, views_with_larger_trees
from fastsim.cluster.prefix import compile_prompts
from fastsim.cluster.routers import get
from fastsim.cluster.routers.tree import tree_has_room
from fastsim.cluster.routers.view import PROMPT_TOK, SESSION
from fastsim.workloads import Workload
from tests.twins import golden

# Policy of each router, its parameters beside the record's, and how a prompt's text is cut into tokens.
POLICIES = {
    "sglang-router": ("sglang_cache_aware_lowest_load", {"chars_per_tok": 1.0}, list),
    "vllm-router": ("vllm_cache_aware", {}, str.split),
}
every_record = pytest.mark.parametrize("path", golden.router_files(), ids=lambda path: path.stem)


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


class Replay:
    """A policy's kernel, with a view whose loads are those of a record.

    ``decide(request)`` asks it, ``send(request, replica)`` and ``finish(request)`` change the loads.
    """

    def __init__(self, workload: Workload, replicas: int, router: str, params: dict):
        policy, cluster = get(router), Cluster(replicas)
        spec = policy.spec(params)
        knowledge = settle(policy, spec, "own", 1, "native", "sent")
        prompts = compile_prompts(workload, cluster.block)
        owner = owners(len(workload), 1, 0, 0)
        state = new_state(workload, prompts, cluster, knowledge, policy, owner, sizes(prompts, cluster))
        self.views = new_views(state, knowledge, policy, spec, workload, cluster, 0, 0)
        self.policy, self.workload = policy.policy, workload
        self.sent: dict[int, int] = {}

    def decide(self, request: int) -> int:
        while not tree_has_room(self.views[0], request):
            self.views = views_with_larger_trees(self.views)
        self.views[0].prompt[[PROMPT_TOK, SESSION]] = self.workload.prompt_tok[request], -1
        return int(self.policy(self.views[0], request))

    def send(self, request: int, replica: int) -> None:
        self.sent[request] = replica
        change_load(self.views[0].load, self.views[0].level, replica, 1)

    def finish(self, request: int) -> None:
        change_load(self.views[0].load, self.views[0].level, self.sent.pop(request), -1)


def decisions(record: dict, router: str, params: dict, cut) -> list[tuple[int, int]]:
    """What was chosen and what we choose, request by request; loads follow the record, trees follow us."""
    events = record["events"]
    replay = Replay(
        workload_of([cut(event[2]) for event in events if event[0] == "arrive"]),
        record["workers"],
        router,
        params,
    )
    number: dict[str, int] = {}
    pairs = []
    for event in events:
        if event[0] == "finish":
            replay.finish(number[event[1]])
            continue
        request = number.setdefault(event[1], len(number))
        pairs.append((event[3], replay.decide(request)))
        replay.send(request, event[3])
    return pairs


@every_record
def test_every_decision_is_the_real_routers(path):
    record = record_of(path)
    router, more, cut = POLICIES[record["router"].split()[0]]
    pairs = decisions(record, router, {**record["settings"], **more}, cut)
    assert len(pairs) == sum(event[0] == "arrive" for event in record["events"]) > 0
    assert [i for i, (theirs, ours) in enumerate(pairs) if theirs != ours] == []


@every_record
def test_records_tell_the_two_routers_and_the_older_fallback_apart(path):
    """Or the test above would pass for another policy, too."""
    record = record_of(path)
    right, _, cut = POLICIES[record["router"].split()[0]]
    settings = record["settings"]
    others = {"sglang_cache_aware_smallest_tree", *(name for name, _, _ in POLICIES.values())} - {right}
    for other in others:
        pairs = decisions(record, other, settings, cut)
        assert sum(theirs != ours for theirs, ours in pairs) > 20, other
