"""Policies a user adds, what is refused, and the sets of replicas that policies are made of."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastsim
from fastsim._sources import Snapshot
from fastsim.cluster import _masks
from fastsim.cluster._state import BITS, LEVELS
from fastsim.cluster.routers import FAMILIES, ROUTERS, get
from fastsim.cluster.routers.registry import Registry
from fastsim.cluster.routers.view import (
    least,
    match_share,
    match_tok,
    nearest,
    prompt_tok,
    smallest_and_largest,
)
from fastsim.errors import InputError
from tests.cluster_runs import cluster_of, serve, serve_slowly
from tests.router_scenes import level_of
from tests.twins import policies as twins
from tests.twins.cases import PLAIN_ROUTERS, make_case
from tests.twins.convert import to_workload

small = pytest.mark.small
every_plain_router = pytest.mark.parametrize("router", PLAIN_ROUTERS)
many = settings(max_examples=100, deadline=None, derandomize=True)
LONG = 4  # seed of a case of 60 requests
replica_counts = st.sampled_from([1, 2, 3, 8, BITS - 1, BITS, BITS + 1, 2 * BITS + 5])


# --- in a cluster -------------------------------------------------------------------------------------------


def case_of(router: str, seed: int, view: str = "live", engine: str = "vllm") -> dict:
    """A random case under a policy; parameters as drawn where the case happens to be for it."""
    case = make_case(seed, engine)
    params = case["router_params"] if case["router"] == router else {}
    return {**case, "router": router, "router_params": params, "view": view}


def replicas_of(case: dict) -> list[int]:
    return serve(case).columns["replica"].tolist()


@small
@every_plain_router
def test_choices_depend_on_the_seed_or_on_nothing(router):
    case = {**case_of(router, LONG), "replicas": 4}
    workload, cluster = to_workload(case), cluster_of(case)
    streams = [(0, 0), (0, 0), (1, 0), (0, 1)]
    first, again, *others = (
        fastsim.simulate(workload, cluster, router, seed=seed, replicate=replicate)
        .columns["replica"]
        .tolist()
        for seed, replicate in streams
    )
    assert first == again
    draws = router in ("random", "power_of_two")
    assert [first != other for other in others] == [draws, draws]


def changed_within_a_period(router: str, seed: int, period: str) -> tuple[list[int], list[int]]:
    """Choices in one period before and after its first request is made much longer, that one left out."""
    case = {**case_of(router, seed, period), "replicas": 4}
    rows = case["requests"]
    span_s = max(rows[-1]["arrival_s"], 4e-12)
    period_ps = round(span_s * 1e12 / 3) + 1
    if period == "periodic":
        case["view"] = f"periodic({period_ps * 1e-12!r})"
    which = [round(row["arrival_s"] * 1e12) // period_ps for row in rows]
    busiest = max(set(which), key=which.count)
    mine = [i for i, window in enumerate(which) if window == busiest]
    longer = [dict(row) for row in rows]
    spelt = sum(case["segments"][str(name)] for name in longer[mine[0]]["path"])
    longer[mine[0]] |= {
        "output_tokens": 500,
        "prompt_tokens": max(spelt, longer[mine[0]].get("prompt_tokens", 0)) + 300,
    }
    longer[mine[0]].pop("answer_segment", None)
    engine = {**case["engine"], "num_blocks": case["engine"]["num_blocks"] + 1000}
    before, after = (replicas_of({**case, "engine": engine, "requests": r}) for r in (rows, longer))
    return [before[i] for i in mine[1:]], [after[i] for i in mine[1:]]


@small
@every_plain_router
def test_a_periodic_view_hides_what_happened_since(router):
    for seed in range(15):
        before, after = changed_within_a_period(router, seed, "periodic")
        assert before == after


@small
def test_a_live_view_shows_what_happened_since():
    """Or the test above would pass for a policy that sees nothing at all."""
    for router in ("least_work", "least_loaded"):
        pairs = [changed_within_a_period(router, seed, "live") for seed in range(15)]
        assert any(before != after for before, after in pairs)


# --- a user's own -------------------------------------------------------------------------------------------


@pytest.fixture
def registry(monkeypatch):
    """The registry, as it was again afterwards."""
    for name in list(ROUTERS):
        monkeypatch.setitem(ROUTERS, name, ROUTERS[name])
    known = set(ROUTERS)
    yield ROUTERS
    for name in set(ROUTERS) - known:
        del ROUTERS[name]


class Stride(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of the policy below."""

    stride: int = 1
    first: int = 0


@small
def test_a_users_policy_runs_with_its_parameters(registry):
    @fastsim.router("every_so_many", params=Stride)
    def every_so_many(view, request):
        """Every so many replicas.

        More words.
        """
        return int(view.params[1] + view.params[0] * request) % view.load.shape[0]

    assert fastsim.routers()["every_so_many"] == "Every so many replicas."
    case = {**case_of("every_so_many", LONG), "replicas": 4}
    n = len(case["requests"])
    assert replicas_of(case) == [i % 4 for i in range(n)]
    params = {"stride": 3, "first": np.int64(2)}
    assert replicas_of({**case, "router_params": params}) == [(2 + 3 * i) % 4 for i in range(n)]
    with pytest.raises(InputError, match=r"router every_so_many: .*'strid'; did you mean 'stride'\?"):
        replicas_of({**case, "router_params": {"strid": 3}})


@small
@pytest.mark.parametrize("view", ["live", "periodic(0.01)"])
def test_a_users_policy_sees_load_work_match_and_keeps_a_memory(registry, view):
    @fastsim.router("mine", needs=["work", "match"])
    def mine(view, request):
        """By turns least work and the nearest, or the least loaded where nobody holds anything."""
        view.memory[7] += 1
        low, high = smallest_and_largest(view.load)
        if view.memory[7] % 2 == 0 and low <= high:
            return least(view.work)
        if match_tok(view) > 0 and match_share(view) * prompt_tok(view) > 0.5:
            return nearest(view)
        return least(view.load)

    class Mine:
        def __init__(self, params, world):
            self.turn = 0

        def choose(self, view, request):
            self.turn += 1
            if self.turn % 2 == 0:
                return twins.least(view.work)
            best = twins.nearest(view)
            return best if view.matched_tok(best) else twins.least(view.in_flight)

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(twins.POLICIES, "mine", Mine)
        for seed in range(20):
            case = {**case_of("mine", seed, view), "replicas": 4}
            assert replicas_of(case) == [request.replica for request in serve_slowly(case).requests]


@small
def test_a_users_blind_policy_knows_the_prompt_and_how_many_replicas_there_are(registry):
    @fastsim.router("by_length", blind=True)
    def by_length(view, request):
        """As long as the prompt is."""
        return prompt_tok(view) % view.load.shape[0]

    case = {**case_of("by_length", LONG), "replicas": 4}
    assert replicas_of(case) == [tok % 4 for tok in to_workload(case).prompt_tok.tolist()]
    with pytest.raises(InputError, match="router 'x': it is blind, so it cannot need 'match'"):
        fastsim.router("x", blind=True, needs=["match"])


@small
def test_a_name_registered_again_is_replaced(registry):
    case = {**case_of("least_loaded", LONG), "replicas": 3}
    assert set(replicas_of(case)) == {0, 1, 2}

    @fastsim.router("least_loaded")
    def constant(view, request):
        """Always the same."""
        return 1

    assert set(replicas_of(case)) == {1}


@small
@pytest.mark.parametrize("answer", [99, 4, -1, -(2**40)])
def test_a_policy_that_names_no_replica_is_told_so(registry, answer):
    @fastsim.router("lost", trial=False)  # which would say it first
    def lost(view, request):
        """Nowhere."""
        return answer if request > 2 else 0

    case = {**case_of("lost", LONG), "replicas": 4}
    with pytest.raises(InputError, match=r"^router 'lost' chose no replica; .* from 0 to 3$"):
        serve(case)


@small
@pytest.mark.parametrize(
    ("router", "params", "message"),
    [
        ("least_lodaed", {}, r"router = 'least_lodaed' is not known; did you mean 'least_loaded'\?"),
        ("", {}, "router = '' is not known; the nearest are vllm_sticky_least_loaded,"),
        ("affinity_threshold", {"thta": 0.5}, r"router affinity_threshold: .*'thta'; did you mean 'theta'\?"),
        (
            "affinity_threshold",
            {"theta": 1.5},
            r"router affinity_threshold: theta = 1\.5 is not allowed; it must be a number",
        ),
        (
            "affinity_threshold",
            {"theta": -0.1},
            r"router affinity_threshold: theta = -0\.1 is not allowed; it must be a",
        ),
        ("affinity_threshold", {"theta": float("nan")}, r"theta = nan is not allowed"),
        (
            "affinity_threshold",
            {"theta": "high"},
            "router affinity_threshold: theta = 'high' is not allowed; it must be a",
        ),
        ("cache_aware_guard", {"abs_threshold": -1}, r"abs_threshold = -1 is not allowed"),
        ("round_robin", {"theta": 0.5}, r"router round_robin: it has no parameter 'theta'"),
    ],
)
def test_unknown_names_and_values_are_refused(router, params, message):
    case = {**make_case(1), "router": router, "router_params": params}
    with pytest.raises(InputError, match=message):
        serve(case)


@small
def test_get_and_needs():
    assert get("random").name == "random"
    with pytest.raises(InputError, match=r"router 'x': needs = 'wrok' .*; did you mean 'work'\?"):
        fastsim.router("x", needs=["wrok"])
    assert "x" not in ROUTERS


# --- policies that nobody asks for --------------------------------------------------------------------------

ASK_FOR_ONE = """
import sys
import fastsim
from fastsim.cluster.routers import ROUTERS
fastsim.simulate
before = set(sys.modules)
ROUTERS["least_loaded"]
print(*(name for name in set(sys.modules) - before if "routers" in name))
"""


@small
def test_a_module_of_policies_is_imported_when_one_is_asked_for():
    command = [sys.executable, "-W", "error", "-c", ASK_FOR_ONE]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["fastsim.cluster.routers.load"]


IMPORT_ALL = """
import importlib
from fastsim.cluster.routers import FAMILIES, ROUTERS, registry
expected = list(ROUTERS)
registry.ROUTERS = registry.Registry()
for family in FAMILIES:
    importlib.import_module(f"fastsim.cluster.routers.{family}")
assert list(registry.ROUTERS) == expected, set(registry.ROUTERS) ^ set(expected)
"""


@small
def test_the_registry_finds_the_policies_of_all_modules_in_their_sources():
    folder = Path(fastsim.__file__).parent / "cluster" / "routers"
    with_policies = {path.stem for path in folder.glob("*.py") if "\n@router(" in path.read_text()}
    assert with_policies == set(FAMILIES)
    subprocess.run([sys.executable, "-c", IMPORT_ALL], check=True)


@small
def test_a_name_taken_before_its_module_was_imported_is_kept(monkeypatch):
    registry = Registry()
    registry.expect("fastsim.cluster.routers.load", ["random", "round_robin"])
    monkeypatch.setattr("fastsim.cluster.routers.registry.ROUTERS", registry)
    monkeypatch.delitem(sys.modules, "fastsim.cluster.routers.load")
    fastsim.router("random")(lambda view, request: 0)
    mine = registry["random"]
    assert registry["round_robin"].name == "round_robin"
    assert registry["random"] is mine


@small
def test_a_module_that_does_not_have_what_it_should_is_named():
    registry = Registry()
    registry.expect("fastsim.cluster.routers.view", ["no_such"])
    assert "no_such" in registry
    with pytest.raises(KeyError, match="view does not register router 'no_such'"):
        registry["no_such"]


@small
def test_a_change_of_a_policy_recompiles_no_other_kernel():
    """Kernels are compiled anew when a file changes that their module can see: the engine's see no policy."""
    package = Path(fastsim.__file__).parent
    sources = Snapshot(package)
    cluster = package / "cluster"
    policies = {cluster / "routers" / f"{family}.py" for family in FAMILIES}
    for module in ("_loop", "_look", "engine"):
        assert not policies & set(sources.seen_from(cluster / f"{module}.py"))
    affinity = cluster / "routers" / "affinity.py"
    assert policies & set(sources.seen_from(affinity)) == {affinity}


# --- sets of replicas ---------------------------------------------------------------------------------------


@small
@given(replicas=st.integers(1, 3 * BITS))
@many
def test_fill(replicas):
    mask = np.full(-(-replicas // BITS), -1, np.int64)
    _masks.fill(mask, replicas)
    assert members(mask) == list(range(replicas))


@small
@given(seed=st.integers(0, 10**6), replicas=replica_counts)
@many
def test_loads_as_masks_give_the_least_loaded(seed, replicas):
    rng = random.Random(seed)
    most = rng.choice([1, LEVELS - 1, 5 * LEVELS])
    load, level = np.zeros(replicas, np.int64), level_of([0] * replicas)
    for _ in range(60):
        r = rng.randrange(replicas)
        _masks.change_load(
            load, level, r, rng.choice([most - load[r], -load[r], rng.randint(-int(load[r]), most)])
        )
    np.testing.assert_array_equal(level, level_of(load.tolist()))
    chosen = sorted(rng.sample(range(replicas), rng.randint(1, replicas)))
    mask = np.zeros(level.shape[1], np.int64)
    for k in chosen:
        mask[k // BITS] |= 1 << k % BITS
    assert _masks.least_loaded_of(load, level, mask) == min(chosen, key=lambda k: (load[k], k))


def members(mask: np.ndarray) -> list[int]:
    return [word * BITS + k for word, bits in enumerate(mask.tolist()) for k in range(64) if bits >> k & 1]
