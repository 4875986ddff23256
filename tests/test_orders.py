"""Local orders: a contract over the registry, what each is for, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from fastsim import Cluster, simulate
from fastsim.cluster._order import cycling_group_of, due, group_of
from fastsim.cluster.orders import MOST_GROUPS, ORDERS, orders, quotas
from fastsim.cluster.step_time import StepTime
from fastsim.errors import InputError
from fastsim.workloads import Workload, make
from tests.twins import orders as twins

pytestmark = pytest.mark.small

every_order = pytest.mark.parametrize("order", list(ORDERS))
every_engine = pytest.mark.parametrize("engine", ["vllm", "lecture"])

# A step of prefill takes a second, one of decode a millisecond: who is admitted in which step shows.
STEPS = StepTime.fixed(1.0, 0.001)


def documents(**changes) -> Workload:
    given = {"requests": 60, "rate_rps": 6.0, "documents": 6, "document_tok": 300, "question_tok": 40}
    return make("long_documents", **{**given, "document_min_tok": 200, "output_tok": 30, **changes})


def served_in(workload: Workload, **settings) -> list[int]:
    """Requests in the order of their first tokens, which are a step apart."""
    settings = {"kv_tok": 4_096, "max_seqs": 1, "max_batch_tok": 4_096, "step_time": STEPS, **settings}
    columns = simulate(workload, Cluster(1, engine="lecture", **settings)).columns
    return np.argsort(columns["first_token_s"], kind="stable").tolist()


def waiting(paths: list[list[int]], symbol_tok: list[int], **columns) -> Workload:
    """Requests of one output token that arrive one after the other within a millisecond."""
    lengths = np.array([sum(symbol_tok[symbol] for symbol in path) for path in paths])
    return Workload(
        name="waiting",
        arrival_s=np.arange(len(paths)) * 1e-6,
        prompt_tok=lengths,
        output_tok=np.ones(len(paths)),
        symbol_ptr=np.cumsum([0] + [len(path) for path in paths]),
        symbols=np.array([symbol for path in paths for symbol in path]),
        symbol_tok=np.array(symbol_tok),
        **columns,
    )


# --- contract -----------------------------------------------------------------------------------------------


def test_one_entry_an_order_and_a_twin_for_each():
    assert list(twins.ORDERS) == list(ORDERS) == list(orders())
    for order in ORDERS.values():
        assert order.doc.endswith(".")
        assert order.source


@every_order
@every_engine
def test_whatever_the_order_all_are_served_and_totals_add_up(order, engine):
    workload = replace(documents(), priority=np.arange(60) % 3)
    cluster = Cluster(2, engine=engine, kv_tok=2_048, max_batch_tok=512, max_seqs=8, order=order)
    result = simulate(workload, cluster, "least_loaded")
    columns = result.columns
    assert (columns["arrival_s"] < columns["first_token_s"]).all()
    assert (columns["first_token_s"] <= columns["done_s"]).all()
    assert result.replicas["requests"].sum() == 60
    again = simulate(workload, cluster, "least_loaded")
    assert again.requests.equals(result.requests)
    steps = simulate(workload, replace(cluster, fast_forward=False), "least_loaded")
    assert steps.requests.equals(result.requests)


@every_order
def test_who_never_waits_cannot_be_reordered(order):
    sparse = documents(rate_rps=0.05)
    plain = simulate(sparse, Cluster(2), "least_loaded").requests
    assert simulate(sparse, Cluster(2, order=order), "least_loaded").requests.equals(plain)


@every_order
def test_a_queue_is_reordered_unless_first_come_is_first_served(order):
    workload = replace(documents(rate_rps=60.0), priority=-np.arange(60))
    cluster = Cluster(1, kv_tok=2_048, max_batch_tok=512, max_seqs=4)
    plain = simulate(workload, cluster).requests
    other = simulate(workload, replace(cluster, order=order)).requests
    assert other.equals(plain) == (order == "fcfs")


# --- each order on a queue that shows what it is for --------------------------------------------------------


def test_longest_prefix_serves_what_is_cached_first():
    paths = [
        [0, 2],
        [1, 3],
        [1, 4],
        [0, 5],
        [6],
        [0, 7],
    ]  # questions about 0 and 1, and one without
    workload = waiting(paths, [100, 60, 9, 9, 9, 9, 9, 9], shared_symbols=[1, 1, 1, 1, 0, 1])
    assert served_in(workload) == [0, 1, 2, 3, 4, 5]
    assert served_in(workload, order="longest_prefix") == [0, 3, 5, 1, 2, 4]


def test_longest_prefix_lets_one_fetch_a_prefix_for_all():
    paths = [[0], [1, 2], [1, 3], [4]]  # while 0 is served, the others come; then there is room for two
    workload = waiting(paths, [9, 60, 9, 9, 9], shared_symbols=[0, 1, 1, 0])
    settings = {"order": "longest_prefix", "max_seqs": 2}
    assert served_in(workload, **settings) == [0, 1, 3, 2]
    for params in ({"check_tok": -1}, {"share_tok": 61}):
        assert served_in(workload, **settings, order_params=params) == [0, 1, 2, 3]
    assert served_in(workload, **settings, order_params={"share_tok": 60}) == [0, 1, 3, 2]


def test_longest_prefix_is_first_come_first_served_in_a_long_queue():
    paths = [[0, 1], [2], [0, 3], [4], [0, 5]]
    workload = waiting(paths, [100, 9, 9, 9, 9, 9], shared_symbols=[1, 0, 1, 0, 1])
    assert served_in(workload, order="longest_prefix") == [0, 2, 4, 1, 3]
    few = {"order_params": {"most_waiting": 3}}
    assert served_in(workload, order="longest_prefix", **few) == [0, 1, 2, 4, 3]


def test_static_orders_sort_by_length_and_by_priority_then_by_arrival():
    paths = [[0], [1], [2], [3], [1]]
    workload = waiting(paths, [50, 30, 40, 20], priority=[0, 5, -1, 5, -1])
    assert served_in(workload, order="shortest_prompt") == [0, 3, 1, 4, 2]
    assert served_in(workload, order="priority") == [0, 2, 4, 1, 3]


def test_of_running_requests_the_least_urgent_is_preempted():
    prompts = waiting([[0], [1], [2]], [32, 32, 32], priority=[0, 9, 0])
    workload = replace(prompts, output_tok=np.full(3, 64))
    cluster = Cluster(1, kv_tok=12 * 16, max_seqs=3, max_batch_tok=512, step_time=STEPS)
    for order, victim in (("fcfs", 2), ("priority", 1)):
        preempted = simulate(workload, replace(cluster, order=order)).columns["preemptions"]
        assert np.flatnonzero(preempted).tolist() == [victim]


def test_of_equally_late_requests_the_first_running_is_preempted_as_by_vllm_or_the_last_in_the_file():
    """vLLM takes the maximum of (priority, arrival) over its running list, and of equal ones the first."""
    asked = replace(waiting([[0], [1], [2]], [32, 48, 64]), arrival_s=np.zeros(3), output_tok=np.full(3, 80))
    cluster = Cluster(
        1, kv_tok=16 * 16, max_seqs=3, max_batch_tok=512, step_time=STEPS, order="priority", block_tok=16
    )
    found = {}
    for ties in ("running_list", "file"):
        result = simulate(asked, replace(cluster, preempt_ties=ties))
        preempted = np.flatnonzero(result.columns["preemptions"]).tolist()
        found[ties] = preempted, int(result.replicas["computed_tok"].sum())
    assert found == {"running_list": ([0, 1], 525), "file": ([2], 461)}
    later = replace(asked, arrival_s=np.arange(3) * 1e-6)
    assert [simulate(later, replace(cluster, preempt_ties=ties)).requests.rows() for ties in found] == 2 * [
        simulate(later, cluster).requests.rows()
    ]


# --- Preble's groups (lecture, exercise 5) ------------------------------------------------------------------


def test_exercise_5_of_100_tokens_63_cached_is_group_6_and_55_requests_are_10_to_1():
    assert group_of(63, 100, 10) == 6
    assert quotas(55, 10) == [10, 9, 8, 7, 6, 5, 4, 3, 2, 1]


def test_groups_at_their_borders():
    assert [group_of(tok, 100, 10) for tok in (0, 9, 10, 19, 20, 99, 100)] == [1, 1, 1, 1, 2, 9, 10]
    assert [cycling_group_of(tok, 100, 10) for tok in (0, 1, 10, 11, 63, 100)] == [0, 0, 0, 1, 6, 9]


@pytest.mark.parametrize("groups", [1, 2, 10, MOST_GROUPS])
def test_quotas_add_up_grow_with_the_group_and_are_in_proportion(groups):
    whole = groups * (groups + 1) // 2
    for take in (0, 1, 2, 7, 55, 1_000):
        found = quotas(take, groups)
        assert sum(found) == take == due(take, groups, 1)
        exact = [take * group / whole for group in range(groups, 0, -1)]
        assert all(abs(a - b) < 1 for a, b in zip(found, exact, strict=True))
    assert all(a > b for a, b in pairwise(quotas(whole, groups)))


# --- what is refused, and how sweeps reach it ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"order": "longest_prefx"}, "order = 'longest_prefx' is not known; .*longest_prefix"),
        (
            {"preempt_ties": "first"},
            "preempt_ties = 'first' is not allowed; choose one of: file, running_list",
        ),
        ({"order": None}, "order = None is not allowed; it must be a text"),
        ({"order_params": {"groups": 10}}, "order fcfs: it has no parameter 'groups'"),
        ({"order": "priority_groups", "order_params": {"groups": 0}}, "order priority_groups: groups = 0"),
        ({"order": "priority_groups", "order_params": {"groups": 61}}, "groups = 61 is not allowed"),
        ({"order": "longest_prefix", "order_params": {"share_tok": 0.5}}, "share_tok = 0.5 is not allowed"),
    ],
)
def test_orders_and_parameters_that_do_not_exist_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        Cluster(**settings)


def test_sweeps_reach_orders_and_their_parameters():
    from fastsim.sweep.spec import parse

    document = {
        "sweep": {"name": "orders", "seeds": 1},
        "base": {"workload": {"name": "long_documents", "requests": 10}},
        "grid": {"order": list(ORDERS), "groups": [5, 10]},
    }
    cells = [cell["cluster"] for cell in parse(document, ["cluster.order_params.share_tok=8"]).cells()]
    found = [(cell["order"], cell["order_params"]) for cell in cells]
    assert ("fcfs", {}) in found
    assert ("longest_prefix", {"most_waiting": 128, "check_tok": 32, "share_tok": 8}) in found
    assert ("priority_groups", {"groups": 5}) in found
    assert ("priority_groups_cycling", {"groups": 10, "per_group": 10}) in found
    only = parse({**document, "grid": {"router": ["random"]}}, ["cluster.order=priority"]).cells()
    assert [cell["cluster"]["order"] for cell in only] == ["priority"]
