"""The slow twin of the cluster: the order of events at one instant, views, and each router's rule."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastsim.rng import generator
from tests.twins.cases import make_case
from tests.twins.cluster import run_cluster
from tests.twins.engine import FS_PER_PS, run_one
from tests.twins.policies import POLICIES, World
from tests.twins.views import Seen, held_tok, parse_view

STEP_MS = {"kind": "linear", "base": 10.0, "per_prefill_token": 0.0, "per_decode_request": 0.0}
ENGINE = {"block_size": 4, "num_blocks": 101, "max_num_seqs": 8, "max_num_batched_tokens": 100}
ENGINES = ["vllm", "lecture"]


def timeline(request) -> tuple:
    """Everything that happened to a request."""
    return request.first_token_fs, request.done_fs, request.hit_tok, request.preemptions


def replica_of(*rows: tuple[float, list[int], int], **settings_) -> list[int | None]:
    """Where requests (arrival_s, path, output) go on steps of 10 ms."""
    requests = [{"arrival_s": at, "path": path, "output_tokens": output} for at, path, output in rows]
    case = {
        "segments": {str(i): 4 for i in range(10)},
        "requests": requests,
        "engine": ENGINE,
        "step_ms": STEP_MS,
    }
    return [request.replica for request in run_cluster({**case, **settings_}).requests]


@pytest.mark.parametrize("engine", ENGINES)
@given(seed=st.integers(0, 10**6))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_one_replica_of_a_cluster_is_the_engine_alone(engine, seed):
    case = make_case(seed, engine)
    alone, replica = run_one(case)
    outcome = run_cluster({**case, "replicas": 1})
    assert [timeline(r) for r in outcome.requests] == [timeline(r) for r in alone]
    assert outcome.replicas[0].log == replica.log


@pytest.mark.parametrize("engine", ENGINES)
@given(seed=st.integers(0, 10**6))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_each_replica_serves_its_requests_as_if_alone(engine, seed):
    case = make_case(seed, engine)
    outcome = run_cluster(case)
    for number in range(case["replicas"]):
        mine = [r for r in outcome.requests if r.replica == number]
        rows = [case["requests"][r.index] for r in mine]
        alone, replica = run_one({**case, "requests": rows})
        assert [timeline(r) for r in mine] == [timeline(r) for r in alone]
        assert outcome.replicas[number].log == replica.log


@given(seed=st.integers(0, 10**6))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_totals_add_up(seed):
    case = make_case(seed)
    outcome = run_cluster(case)
    totals = outcome.totals()
    assert sum(row["hit_tok"] for row in totals) == sum(r.hit_tok for r in outcome.requests)
    assert sum(row["preemptions"] for row in totals) == sum(r.preemptions for r in outcome.requests)
    assert (
        max(row["cached_tok"] for row in totals)
        <= outcome.distinct_tok()
        <= sum(r["cached_tok"] for r in totals)
    )
    last_fs = max(r.done_fs for r in outcome.requests)
    first_fs = min(r.arrival_ps for r in outcome.requests) * FS_PER_PS
    assert all(row["busy_fs"] <= last_fs - first_fs for row in totals)


def test_step_ends_come_before_arrivals_of_the_same_instant():
    rows = [(0.0, [1], 1), (0.01, [2], 1), (0.01, [3], 1)]
    assert replica_of(*rows, router="least_loaded", replicas=2) == [0, 0, 1]
    assert replica_of((0.0, [1], 1), (0.009, [2], 1), router="least_loaded", replicas=2) == [0, 1]


def test_caches_are_known_when_the_step_that_changed_them_has_ended():
    settings_ = {"router": "prefix_affinity", "replicas": 2, "caches": "events"}
    together = replica_of((0.0, [9], 1), (0.0, [1, 2], 1), (0.0, [1, 2], 1), **settings_)
    assert together == [
        0,
        1,
        0,
    ]  # nothing is cached when the third is routed: ties go to the fewest in flight
    for at, chosen in ((0.001, 0), (0.00999, 0), (0.01, 1)):  # the second's step ends at 0.01
        assert replica_of((0.0, [9], 1), (0.0, [1, 2], 1), (at, [1, 2], 1), **settings_) == [0, 1, chosen]


def test_periodic_view_is_the_state_at_the_last_tick():
    rows = [(0.001, [1], 3), (0.002, [2], 3), (0.011, [3], 1), (0.012, [4], 1)]
    assert replica_of(*rows, router="least_loaded", replicas=3, view="periodic(0.01)") == [0, 0, 1, 1]
    assert replica_of(*rows, router="least_loaded", replicas=3) == [0, 1, 2, 0]  # at 0.012 each has one


def test_periodic_view_at_a_tick_sees_step_ends_but_no_arrivals_or_starts():
    rows = [(0.0, [1], 1), (0.01, [1], 2), (0.01, [2], 1), (0.02, [3], 1)]
    settings_ = {"router": "least_loaded", "replicas": 2, "view": "periodic(0.01)"}
    # At 0.01 the first is done; the arrivals of that instant see neither each other nor themselves at 0.02.
    assert replica_of(*rows, **settings_) == [0, 0, 0, 1]


def test_delayed_view_is_the_state_at_the_end_of_an_instant_ago():
    rows = [(0.001, [1], 3), (0.002, [2], 3), (0.011, [3], 1), (0.0111, [4], 1)]
    settings_ = {"router": "least_loaded", "replicas": 3}
    assert replica_of(*rows, view="delayed(0.009)", **settings_) == [0, 0, 1, 1]
    assert replica_of(*rows, view="delayed(0.0091)", **settings_) == [0, 0, 1, 1]
    assert replica_of(*rows, view="delayed(0.00911)", **settings_) == [0, 0, 1, 1]
    assert replica_of(*rows, view="delayed(0.0001)", **settings_) == [0, 1, 2, 0]
    assert replica_of(*rows, view="delayed(0.000101)", **settings_) == [0, 1, 2, 2]


def test_own_view_is_what_a_router_sent_and_heard_back():
    rows = [(0.0, [1], 1), (0.0, [2], 3), (0.001, [3], 1), (0.01, [4], 1), (0.0109, [5], 1)]
    settings_ = {"router": "least_loaded", "replicas": 3, "view": "own"}
    assert replica_of(*rows, **settings_) == [0, 1, 2, 0, 0]  # 0 is empty at 0.01; later each has one


def test_routers_do_not_know_what_others_sent():
    rows = [(0.0, [k], 1) for k in range(8)]
    owner = generator(0, 0, "routers").integers(2, size=8).tolist()
    turns = [owner[:i].count(owner[i]) for i in range(8)]
    settings_ = {"router": "least_loaded", "replicas": 3, "routers": 2}
    assert replica_of(*rows, view="own", **settings_) == [turn % 3 for turn in turns]
    assert replica_of(*rows, view="live", **settings_) == [i % 3 for i in range(8)]


def test_a_request_may_count_from_its_first_token_only():
    rows = [(0.0, [1], 3), (0.001, [2], 3), (0.002, [3], 3), (0.012, [4], 1)]
    settings_ = {"router": "least_loaded", "replicas": 2}
    assert replica_of(*rows, **settings_) == [0, 1, 0, 1]
    assert replica_of(*rows, counted_from="first_token", **settings_) == [0, 0, 0, 1]


@pytest.mark.parametrize(("num_blocks", "expected"), [(7, 0), (6, 1)])
def test_approximate_caches_are_what_was_sent_and_fits(num_blocks, expected):
    """Six blocks are sent to replica 0: with room for five, the first of the first prompt is forgotten."""
    rows = [(0.0, [1, 2], 1), (0.1, [3], 1), (0.2, [4], 1), (0.29, [5], 3), (0.29, [6], 3), (0.291, [7], 3)]
    chosen = replica_of(
        *rows,
        (0.292, [1, 2], 1),
        router="prefix_affinity",
        replicas=2,
        caches="approximate",
        engine={**ENGINE, "num_blocks": num_blocks},
    )
    assert chosen == [0, 0, 0, 0, 1, 0, expected]


def test_prompts_in_flight_count_as_held_until_they_end():
    rows = [(0.0, [9], 1), (0.0, [1, 2], 1), (0.0, [1, 2], 1)]
    settings_ = {"router": "prefix_affinity", "replicas": 2}
    for view in ("live", "own"):
        assert replica_of(*rows, view=view, caches="events", **settings_) == [0, 1, 0]
        assert replica_of(*rows, view=view, caches="in_flight", **settings_) == [0, 1, 1]


def test_routers_do_not_know_of_others_prompts_in_flight_in_their_own_view():
    owner = generator(0, 0, "routers").integers(2, size=8).tolist()
    turns = [owner[:i].count(owner[i]) for i in range(8)]
    second = next(i for i in range(8) if owner[i] == owner[0] and turns[i] == 1)
    other = next(i for i in range(second + 1, 8) if owner[i] != owner[0] and turns[i] != 1)
    rows = [(0.0, [8 if k in (second, other) else k], 3) for k in range(8)]
    settings_ = {"router": "prefix_affinity", "replicas": 8, "routers": 2, "caches": "in_flight"}
    assert replica_of(*rows, view="own", **settings_) == turns
    chosen = replica_of(*rows, view="live", **settings_)
    assert chosen[other] == chosen[second] == second


@pytest.mark.parametrize("view", ["periodic(0)", "delayed(-1)", "periodically", "fresh"])
def test_an_unknown_view_is_refused(view):
    with pytest.raises(ValueError, match="view"):
        parse_view(view)


def choose(
    router: str, in_flight, *, held=None, work=None, draws=(), prompt_tok=10, turn=0, params=None
) -> int:
    """A router's choice in a given view; the prompt has units 1, 2, 3 of 3 tokens and a private token."""
    left = list(draws)

    def below(n: int) -> int:
        assert 0 <= left[0] < n
        return left.pop(0)

    replicas = len(in_flight)
    request: Any = SimpleNamespace(units=[(1, 3), (2, 3), (3, 3)], prompt_tok=prompt_tok)
    match = [held_tok(request, keys) for keys in held or [set()] * replicas]
    none = [0] * replicas
    view = Seen(0, list(in_flight), list(work or in_flight), none, none, none, 100, match.__getitem__)
    draw: Any = SimpleNamespace(below=below)
    defaults = {"theta": 0.5, "abs_threshold": 8, "rel_threshold": 1.5}
    policy = POLICIES[router](defaults | (params or {}), World(replicas, 1, 0, "vllm", 3, 100, 100, draw))
    for _ in range(turn):
        policy.choose(view, request)
    choice = policy.choose(view, request)
    assert not left, "a router must draw as often as the case says"
    return choice


def test_random_and_round_robin():
    assert choose("random", [9, 0, 0], draws=[0]) == 0
    assert [choose("round_robin", [9, 0, 0], turn=turn) for turn in range(4)] == [0, 1, 2, 0]


def test_least_loaded_and_least_work_take_the_lowest_index_among_equals():
    assert choose("least_loaded", [2, 1, 1], work=[0, 5, 4]) == 1
    assert choose("least_work", [0, 1, 1], work=[5, 4, 4]) == 1


def test_power_of_two_draws_two_distinct_replicas_and_a_tie_keeps_the_first():
    assert choose("power_of_two", [1, 1, 1], draws=[2, 0]) == 2
    assert choose("power_of_two", [0, 1, 1], draws=[2, 0]) == 0
    assert choose("power_of_two", [1, 1, 0], draws=[1, 1]) == 2  # 1 among the others of 1 is replica 2
    assert choose("power_of_two", [7]) == 0


def test_prefix_affinity_counts_consecutive_units_only():
    assert choose("prefix_affinity", [0, 5, 0], held=[{2, 3}, {1}, set()]) == 1
    assert choose("prefix_affinity", [0, 5, 0], held=[{1, 3}, {1, 2}, set()]) == 1
    assert choose("prefix_affinity", [3, 2, 2], held=[{1, 3}, {1}, {1, 3}]) == 1
    assert choose("prefix_affinity", [3, 2, 2]) == 1


def test_affinity_threshold_is_strict():
    held = [set(), {1}]
    assert choose("affinity_threshold", [0, 5], held=held, params={"theta": 0.3}) == 0
    assert choose("affinity_threshold", [0, 5], held=held, params={"theta": 0.29}) == 1
    assert choose("affinity_threshold", [0, 5], held=[set(), {1, 2}]) == 1
    assert choose("affinity_threshold", [0, 5], held=[set(), {1, 2}], prompt_tok=12) == 0


def test_guard_needs_both_conditions():
    held = [set(), {1, 2, 3}]
    assert choose("cache_aware_guard", [1, 9], held=held) == 1
    assert choose("cache_aware_guard", [1, 10], held=held) == 0
    assert choose("cache_aware_guard", [18, 27], held=held) == 1
    assert choose("cache_aware_guard", [18, 28], held=held) == 0
