"""A cluster that is told request by request does what it does when it knows them all."""

from __future__ import annotations

import random

import numpy as np
import pytest

from fastsim import Cluster, simulate
from fastsim.cluster.outages import Restart
from fastsim.cluster.step_time import StepTime
from fastsim.cluster.stepwise import FAR_PS, Stepwise
from fastsim.errors import InputError
from fastsim.workloads import make

pytestmark = pytest.mark.small

OPTIONS = {
    "view": "native",
    "routers": 1,
    "caches": "native",
    "counted_from": "sent",
    "seed": 3,
    "replicate": 0,
}
STEP = StepTime.linear(0.01, 1e-4, 1e-3)
SMALL = {"kv_tok": 2048, "max_batch_tok": 256, "max_seqs": 8, "step_time": STEP}
PLAIN = Cluster(3, **SMALL)
SHAKEN = Cluster(3, **SMALL, restarts=[Restart(0, 3.0, 1.0, 0.5)], joins_s=[5.0])


def documents():
    return make(
        "long_documents",
        requests=120,
        rate_rps=8.0,
        documents=9,
        document_tok=300.0,
        document_min_tok=50,
        question_tok=40.0,
    )


def told_one_by_one(workload, cluster, router, params=None, seed=0, **options):
    """Stop at random instants and at ends of requests on the way."""
    rng = random.Random(seed)
    run = Stepwise(workload, cluster, router, params, **{**OPTIONS, **options})
    over: list[int] = []
    said_ps: dict[int, int] = {}
    now = 0

    def hear(finished: list[int], refused: list[int]) -> None:
        said_ps.update((request, run.done_ps(request)) for request in finished)
        over.extend([*finished, *refused])

    for request, arrival in enumerate(np.rint(workload.arrival_s * 1e12).astype(int).tolist()):
        if rng.random() < 0.3:
            now = rng.randint(now, arrival)
            hear(*run.run_until(now))
        while rng.random() < 0.7 and run.next_ps() <= arrival:
            hear(*run.run_to_finish(arrival))
        hear(*run.arrive(request, arrival))
        now = arrival
    while run.next_ps() < FAR_PS:
        hear(*run.run_to_finish(FAR_PS))
    assert sorted(over) == list(range(len(workload)))
    assert said_ps == {request: run.done_ps(request) for request in said_ps}  # when it was said, it was so
    return run.result()


CASES = [
    ("round_robin", {}, PLAIN),
    ("least_work", {}, PLAIN),
    ("cache_aware_guard", {}, PLAIN),
    ("cache_aware_guard", {}, SHAKEN),
    ("power_of_two", {"view": "own", "routers": 2}, PLAIN),
    ("least_loaded", {"view": "periodic(0.7)"}, PLAIN),
    ("affinity_threshold", {"view": "periodic(0.7)"}, SHAKEN),
    ("least_work", {"view": "delayed(0.3)"}, PLAIN),
    ("cache_aware_guard", {"view": "delayed(0.3)", "counted_from": "first_token"}, SHAKEN),
    ("cache_aware_guard", {"caches": "approximate"}, PLAIN),
    ("least_loaded", {"most_load": 2.0}, PLAIN),
    ("mooncake", {}, PLAIN),
    ("preble", {}, PLAIN),
    ("preble_code", {}, SHAKEN),
]


@pytest.mark.parametrize(("router", "options", "cluster"), CASES)
def test_the_same_as_a_run_that_knows_all(router, options, cluster):
    workload = documents()
    known = simulate(workload, cluster, router, **{**OPTIONS, **options})
    told = told_one_by_one(workload, cluster, router, **options)
    for name, column in known.columns.items():
        if name != "arrival_s":
            np.testing.assert_array_equal(told.columns[name], column, err_msg=name)
    for name, column in known.replicas.items():
        np.testing.assert_array_equal(told.replicas[name], column, err_msg=name)
    np.testing.assert_allclose(told.columns["arrival_s"], known.columns["arrival_s"], rtol=0, atol=1e-12)
    assert told.copies == known.copies


def test_a_request_admitted_as_its_blocks_arrive_has_not_ended():
    workload = make(
        "long_documents",
        requests=100,
        rate_rps=20.0,
        documents=3,
        document_tok=600.0,
        document_min_tok=300,
        question_tok=40.0,
    )
    sends = {"balancing_threshold": 1.1, "ttft_slo_s": 0.0, "tbt_slo_s": 0.0}
    told = told_one_by_one(workload, PLAIN, "mooncake", sends)
    np.testing.assert_array_equal(
        told.columns["done_s"], simulate(workload, PLAIN, "mooncake", sends, seed=3).columns["done_s"]
    )


def test_those_that_did_not_come_are_in_no_result():
    workload = documents()
    run = Stepwise(workload, PLAIN, "least_loaded", None, **OPTIONS)
    for request in (7, 3):
        run.arrive(request, 10**12)
    while run.next_ps() < FAR_PS:
        run.run_to_finish(FAR_PS)
    result = run.result()
    np.testing.assert_array_equal(result.columns["prompt_tok"], workload.prompt_tok[[7, 3]])
    np.testing.assert_array_equal(result.columns["replica"], [0, 1])
    assert (result.columns["done_s"] > 1.0).all()
    assert result.replicas["requests"].sum() == 2


def test_it_refuses_what_simulate_refuses():
    with pytest.raises(
        InputError, match=r"router = 'least_load' is not known; did you mean 'least_loaded'\?"
    ):
        Stepwise(documents(), PLAIN, "least_load", None, **OPTIONS)
