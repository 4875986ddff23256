"""Capacity is what closed forms say, whatever the rate and the length, and the verdict follows from it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fastsim import Cluster, simulate
from fastsim.cluster.capacity import _lasting, capacity
from fastsim.cluster.outages import Restart
from fastsim.cluster.step_time import StepTime
from fastsim.stats import load_state
from fastsim.workloads import Workload, make
from tests.study.stability import by_formula, judged

PREFILL_S, DECODE_S = 0.1, 0.02
STEP = StepTime.fixed(PREFILL_S, DECODE_S)
ONE_A_STEP = {"step_time": STEP, "kv_tok": 1 << 16, "max_batch_tok": 512, "max_seqs": 64}


def alone(**more):
    """Prompts that fill a step each and share nothing, answered by one token: 10 a second and replica."""
    return make("unique", **{"prompt_tok": 512, "output_tok": 1, "requests": 50, **more})


# --- the capacity itself ------------------------------------------------------------------------------------


@pytest.mark.parametrize("router", ["round_robin", "random", "least_loaded", "consistent_hash_bounded"])
@pytest.mark.parametrize("replicas", [1, 2, 5])
def test_equal_replicas_that_share_nothing(router, replicas):
    found = capacity(alone(), Cluster(replicas, **ONE_A_STEP), router)
    assert found.rps == pytest.approx(replicas / PREFILL_S, rel=0.005)
    assert not found.refuses


@pytest.mark.parametrize(
    ("router", "replicas_worth"),
    [("round_robin", 3 * 0.5), ("random", 3 * 0.5), ("least_work", 1.0 + 1.0 + 0.5), ("least_loaded", 2.5)],
)
def test_a_slow_replica_is_the_bottleneck_of_routers_that_do_not_look(router, replicas_worth):
    found = capacity(alone(), Cluster(3, speeds=[1.0, 1.0, 0.5], **ONE_A_STEP), router)
    assert found.rps == pytest.approx(replicas_worth / PREFILL_S, rel=0.02)


def test_decoding_in_full_batches():
    """Eight run at once, each for a step with its prompt and 100 that decode: 8 / 101 finish a step."""
    step = StepTime.linear(0.02, 1e-4, 5e-4)
    cluster = Cluster(2, step_time=step, kv_tok=1 << 16, max_batch_tok=512, max_seqs=8)
    found = capacity(make("unique", prompt_tok=56, output_tok=101, requests=10), cluster)
    each_step_s = 0.02 + 8 / 101 * 56 * 1e-4 + 8 * 100 / 101 * 5e-4
    assert found.rps == pytest.approx(2 * 8 / 101 / each_step_s, rel=0.005)


def test_whoever_sends_all_to_the_first_has_the_capacity_of_one():
    shared = make("tool_use", requests=50, zipf=0.0)
    herded, spread = (capacity(shared, Cluster(4), router).rps for router in ("prefix_affinity", "random"))
    one = capacity(shared, Cluster(1)).rps
    assert herded == pytest.approx(one, rel=0.02)
    assert spread > 3.5 * one


@pytest.mark.parametrize("router", ["round_robin", "affinity_threshold"])
def test_neither_rate_nor_length_nor_outages_count(router):
    def found(cluster=None, **traffic):
        return capacity(make("long_documents", **traffic), cluster or Cluster(2), router, precision=0.03)

    usual = found(rate_rps=1.0, requests=100)
    assert found(rate_rps=7.0, requests=100) == usual
    assert found(rate_rps=0.1, duration_s=20_000.0) == usual
    assert found(rate_rps=2.0, requests=300, arrivals="gamma", arrival_cv=3.0) == usual
    restart = Restart(0, 3.0, 100.0)
    assert found(Cluster(2, restarts=[restart], joins_s=[50.0]), requests=20) == usual


def test_sessions_come_in_the_order_they_have_at_capacity():
    slow, fast = (
        capacity(make("agentic", rate_rps=rate, requests=200), Cluster(2), "session_sticky", precision=0.1)
        for rate in (0.5, 50.0)
    )
    assert slow == fast


def test_what_was_not_made_here_is_repeated():
    whole = make("unique", prompt_tok=512, prompt_cv=0.5, output_tok=20, output_cv=0.5, requests=400)
    cut = whole.take(300)
    assert cut.origin is None
    found = [capacity(replace(cut, arrival_s=at), Cluster(2)) for at in (cut.arrival_s, np.zeros(300))]
    assert found[0] == found[1]
    assert found[0].rps == pytest.approx(capacity(whole, Cluster(2)).rps, rel=0.06)  # 300 are a sample
    assert capacity(alone().take(1), Cluster(2, **ONE_A_STEP)).rps == pytest.approx(2 / PREFILL_S, rel=0.005)


def test_turns_that_wait_for_answers_lose_nothing():
    """Sessions of three turns without thinking: as many tokens as if all were apart."""
    n = 600
    turns = replace(
        alone(requests=n),
        follows=np.where(np.arange(n) % 3, np.arange(n) - 1, -1),
        think_s=np.zeros(n),
        origin=None,
    )
    assert capacity(turns, Cluster(2, **ONE_A_STEP)).rps == pytest.approx(2 / PREFILL_S, rel=0.01)


# --- rates that fall with the backlog -----------------------------------------------------------------------


def walks_away(rates: np.ndarray, rate: float, *, steps: int, seed: int) -> bool:
    """Whether a backlog of Markovian arrivals and departures, these at rates[k], reaches the curve's end."""
    rng = np.random.default_rng(seed)
    most = float(rates.max())
    arrivals, chances = rng.random(steps) < rate / (rate + most), rng.random(steps)
    backlog = 0
    for arrives, chance in zip(arrivals.tolist(), chances.tolist(), strict=True):
        if arrives:
            backlog += 1
        elif chance < rates[backlog] / most:
            backlog = max(backlog - 1, 0)
        if backlog == len(rates) - 1:
            return True
    return False


def test_a_curve_that_does_not_fall_ends_at_the_capacity():
    waiting = np.array([8.0, 32.0, 128.0])
    assert _lasting(waiting, np.array([9.0, 10.0, 11.0]), 2.0) == 11.0
    assert _lasting(waiting, np.full(3, 10.0), 2.0) == 10.0


def test_a_hump_counts_as_far_as_a_backlog_does_not_get_over_it():
    """The rate at which few wait for long lies between those of short and long queues; variance lowers it."""
    waiting, rps = np.array([100.0, 200.0, 400.0]), np.array([10.0, 10.0, 9.0])
    rates = [_lasting(waiting, rps, variance) for variance in (1.0, 2.0, 4.0, 100.0)]
    assert rates == sorted(rates, reverse=True)
    assert 9.0 == rates[-1] < rates[-2]
    assert rates[0] < 10.0
    for variance, rate in zip((1.0, 2.0, 4.0), rates, strict=False):
        curve = np.interp(np.log(np.arange(1, 401)), np.log(waiting), rps)
        barrier = sum(2.0 / variance * (x / rate - 1.0) for x in curve.tolist() if x > rate)
        assert barrier == pytest.approx(5.0, rel=1e-3)


def test_the_rule_for_humps_holds_for_a_random_walk():
    """Poisson arrivals and departures have the variance 2. 0 of 200 runs left at 0.98, 200 at 1.05."""
    waiting, rps = np.array([100.0, 200.0, 400.0]), np.array([10.0, 10.0, 8.0])
    rate = _lasting(waiting, rps, 2.0)
    curve = np.interp(np.log(np.arange(1, 601)), np.log(waiting), rps)
    for factor, all_leave in ((0.98, False), (1.05, True)):
        left = {walks_away(curve, factor * rate, steps=80_000, seed=seed) for seed in range(6)}
        assert left == {all_leave}


# --- the verdict --------------------------------------------------------------------------------------------


def test_the_verdict_depends_on_the_rate_alone():
    """Prompts of 9,800 and answers of 430 tokens on two A100s: about 2 requests/s, whatever the length."""

    def summary(rate_rps, requests):
        given = {"prompt_tok": 9800, "output_tok": 430, "rate_rps": rate_rps, "requests": requests}
        return simulate(make("unique", **given), Cluster(2, gpu="a100"), "round_robin").summary

    for requests in (200, 800, 1000):
        found = [summary(rate, requests) for rate in (1.5, 1.9, 2.2, 3.0, 6.0, 10.0)]
        assert [each["stable"] for each in found] == [True, True, False, False, False, False]
        assert [each["offered_load"] * each["capacity_rps"] for each in found] == pytest.approx(
            [1.5, 1.9, 2.2, 3.0, 6.0, 10.0]
        )
        assert {each["capacity_rps"] for each in found} == {found[0]["capacity_rps"]}
        assert [each["latency_p99_s"] is None for each in found] == [not each["stable"] for each in found]


@pytest.mark.parametrize("setting", list(by_formula())[::3], ids=lambda setting: setting.name)
def test_verdicts_where_the_capacity_is_known(setting):
    """A fifth of the study's settings by formula, at five loads in runs of 60 to 3,000 requests."""
    for load, stable, told in judged(setting):
        assert stable == (load < 1.0)
        assert told == pytest.approx(load, rel=0.01)


def test_whoever_refuses_keeps_up_with_anything():
    workload = alone(requests=2_000, rate_rps=100.0)
    params = {"ttft_slo_s": 5.0, "tbt_slo_s": 0.0}
    summary = simulate(workload, Cluster(2, **ONE_A_STEP), "mooncake", params).summary
    assert summary["stable"]
    assert summary["rejected"] > 0.5
    assert summary["capacity_rps"] == pytest.approx(2 / PREFILL_S, rel=0.02)
    assert summary["offered_load"] == pytest.approx(5.0, rel=0.02)
    never = {"ttft_slo_s": 0.0, "tbt_slo_s": 0.0}
    assert not simulate(workload, Cluster(2, **ONE_A_STEP), "mooncake", never).summary["stable"]


def test_all_at_one_time_is_above_any_capacity():
    summary = simulate(replace(alone(), arrival_s=np.zeros(50), origin=None), Cluster(2)).summary
    assert summary["offered_load"] is None
    assert not summary["stable"]


def test_words():
    loads = [0.5, 0.969, 0.98, 1.0, 1.02, 1.031, None]
    assert [load_state(load) for load in loads] == [
        *("stable", "stable", "near capacity", "near capacity", "near capacity", "unstable", "unstable"),
    ]
    assert {load_state(load, refuses=True) for load in loads} == {"stable"}


# --- the rate offered ---------------------------------------------------------------------------------------


def test_the_rate_offered_is_the_workloads_own_where_it_is_known():
    made = alone(rate_rps=3.0, requests=20)
    assert made.summary.rate_rps != 3.0
    assert made.offered_rps == 3.0
    cut = made.take(10)
    assert cut.offered_rps == cut.summary.rate_rps


@pytest.mark.parametrize("law", ["normal", "lognormal"])
def test_turns_are_whole(law):
    """Rounding, and at least one turn, make more turns than asked for."""
    given = {"turns": 1.0, "turns_cv": 1.5, "length_law": law, "think_s": 0.0, "rate_rps": 10.0}
    workload: Workload = make("agentic", requests=200_000, **given)
    assert workload.offered_rps == pytest.approx(workload.summary.rate_rps, rel=0.01)
    assert workload.offered_rps is not None
    assert workload.offered_rps > 10.3
