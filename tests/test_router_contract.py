"""The contract of routing policies, over all that are registered: each is its twin and knows but its view."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

import fastsim
from fastsim.cluster.knowledge import owners
from fastsim.cluster.routers import ROUTERS
from tests.cluster_runs import serve
from tests.odd_router import odd_routers
from tests.router_cases import routed_case, unlike_its_twin
from tests.router_scenes import Scenes
from tests.twins.policies import POLICIES

small = pytest.mark.small
every_router = pytest.mark.parametrize("router", list(ROUTERS))
with_twin = pytest.mark.parametrize("router", [name for name in ROUTERS if name in POLICIES])

FEW, MANY = range(3), range(3, 12)  # seeds of the runs made uncompiled, too, and of the others
SCENES = range(8)
FOUND = {  # seeds that found faults: nodes that went on with answers, a poll at every instant
    "e2": (5000, 5017, 5024, 5050, 5101),
    "preble": (5005, 5040, 5062, 5095, 5106, 5121),
    "preble_code": (5005, 5014, 5025, 5092, 5100, 5133),
}


@small
@every_router
def test_it_has_a_twin_and_says_what_it_does(router):
    assert router in POLICIES, f"{router} has no twin in tests/twins/policies"
    assert ROUTERS[router].doc.endswith(".")
    assert "\n" not in ROUTERS[router].doc
    assert fastsim.routers()[router] == ROUTERS[router].doc


@small
@every_router
def test_it_is_said_when_it_learns_what_caches_hold(router):
    docs = (Path(__file__).parents[1] / "docs" / "cache-events.md").read_text(encoding="utf-8")
    rows = [row for row in docs.split("## ")[0].splitlines() if row.startswith("| `")]
    first_column = {name for row in rows for name in re.findall(r"`(\w+)`", row.split(" | ")[0])}
    assert (router in first_column) == bool(ROUTERS[router].needs & {"match", "matches", "evictions"})


@small
@with_twin
def test_it_decides_as_its_twin(router):
    for seed in SCENES:
        scenes = Scenes(router, seed)
        for answer, expected in scenes.ask():
            assert answer == expected, f"seed {seed}: {scenes.case['router_params']}"
            assert answer[0] in ("reject", "hold") or 0 <= answer[0] < scenes.replicas


@small
@with_twin
def test_it_reads_only_what_it_asked_for(router):
    for seed in SCENES:
        for poisoned, clean in zip(
            Scenes(router, seed, poisoned=True).ask(), Scenes(router, seed).ask(), strict=True
        ):
            assert poisoned == clean


@small
@with_twin
def test_it_serves_as_its_twin(router):
    assert [each for seed in FEW for each in unlike_its_twin(routed_case(router, seed))] == []


@with_twin
def test_it_serves_many_cases_as_its_twin(router):
    assert [each for seed in MANY for each in unlike_its_twin(routed_case(router, seed))] == []


@pytest.mark.parametrize("router", list(FOUND))
def test_what_was_wrong_once_is_as_its_twin(router):
    assert [each for seed in FOUND[router] for each in unlike_its_twin(routed_case(router, seed))] == []


# --- no view shows more than it should ----------------------------------------------------------------------


def bursts(router: str, seed: int, view: str) -> tuple[dict, float]:
    """Requests in bursts, shared by two routers, and for how long the view hides what the other one does."""
    rng = random.Random(f"bursts-{router}-{seed}")
    case = routed_case(
        router,
        seed,
        routers=2,
        view="live",
        counted_from="sent",
        engine="vllm",
        replicas=rng.choice([2, 3, 8]),
    )
    step_s = (sum(case["step_ms"]["pieces"][0][0][:3]) + 1000) / 1e15
    rows = sorted(case["requests"], key=lambda row: row["arrival_s"])
    rows = [{**row, "arrival_s": i // 6 * 3 * step_s} for i, row in enumerate(rows)]
    hidden_s = {"own": 0.0, "live": 0.0}.get(view, 7 * step_s)
    caches = "native" if ROUTERS[router].tree is not None else "approximate"
    engine = {**case["engine"], "num_blocks": case["engine"]["num_blocks"] + 1000}
    shown = f"{view}({hidden_s!r})" if hidden_s else view
    settings = {"requests": rows, "view": shown, "caches": caches, "engine": engine}
    return {**case, **settings}, hidden_s


def what_the_other_did(router: str, seed: int, view: str) -> tuple[list[int], list[int]]:
    """One router's choices while the other's are hidden, before and after the other's answers are longer.

    In a periodic view until the first refresh, in a delayed one until the first report can come, in a
    router's own within one instant: then nobody can know what the other router has done.
    """
    case, hidden_s = bursts(router, seed, view)
    owner = owners(len(case["requests"]), 2, 0, 0).tolist()
    window = [i for i, row in enumerate(case["requests"]) if row["arrival_s"] < max(hidden_s, 1e-15)]
    longer = [dict(row) for row in case["requests"]]
    for i in window:
        if owner[i] == 1:
            longer[i]["output_tokens"] += 300
            longer[i].pop("answer_segment", None)
    before, after = (
        serve({**case, "requests": rows}).columns["replica"].tolist() for rows in (case["requests"], longer)
    )
    mine = [i for i in window if owner[i] == 0]
    return [before[i] for i in mine], [after[i] for i in mine]


@small
@every_router
@pytest.mark.parametrize("view", ["own", "periodic", "delayed"])
def test_a_view_hides_what_other_routers_did(router, view):
    for seed in range(4):
        before, after = what_the_other_did(router, seed, view)
        assert before == after


@small
def test_a_live_view_shows_it():
    """Or the test above would pass for a policy that sees nothing at all."""
    with odd_routers():
        pairs = [what_the_other_did("odd_plain", seed, "live") for seed in range(10)]
    assert any(before != after for before, after in pairs)
