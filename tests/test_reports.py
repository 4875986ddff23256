"""Public reports of routers that went wrong, as scenarios: SGLang's, vLLM's and its production stack's.

Each shows the fault with the policy as it was, and what cures it. `tests.test_reports_dynamo` has the others.
"""

from __future__ import annotations

import numpy as np

from fastsim import simulate
from fastsim.rng import stream
from fastsim.workloads import make
from tests.report_scenes import (
    Ask,
    arrivals,
    cluster,
    hit_rate,
    latency_s,
    most_in_flight,
    shares,
    ttft_s,
    workload,
)
from tests.router_replay import Replay

SGLANG = "sglang_cache_aware_"


def test_sglang_14532_the_smallest_tree_is_not_the_least_work():
    """sgl-project/sglang#14532, #14305: without a match the worker with the smallest tree, whatever its load.

    A long document has made one worker's tree large, and it is idle since. Prompts that nobody shares all go
    to the other one, whose tree stays the smaller for long. The fallback to the lowest load cures it.
    """
    rng = np.random.default_rng(1)
    others = [Ask(at, own_tok=200, output_tok=200) for at in arrivals(rng, 8.0, 64, start_s=20.0)]
    asked = workload([Ask(0.0, own_tok=60_000), *others])
    was, now = (
        simulate(asked, cluster(2), SGLANG + fallback) for fallback in ("smallest_tree", "lowest_load")
    )
    assert shares(was, 2, since_s=10.0).tolist() == [0.0, 1.0]
    assert shares(now, 2, since_s=10.0).tolist() == [0.5, 0.5]
    assert (most_in_flight(was), most_in_flight(now)) == (62, 19)
    assert latency_s(was)[1:].mean() > 2.1 * latency_s(now)[1:].mean()


def test_sglang_15473_loads_that_are_never_counted():
    """sgl-project/sglang#15473: over gRPC no load was ever counted, so the first of equals got everything.

    The threshold never fires either. Counting cures it, and so does the later rule that ties go to the worker
    that was sent the fewest, which does not depend on the counts.
    """
    rng = np.random.default_rng(2)
    asked = workload([Ask(at, own_tok=200, output_tok=100) for at in arrivals(rng, 20.0, 200)])
    params = {"balance_abs_threshold": 8.0}
    was = simulate(asked, cluster(2), SGLANG + "lowest_load", {**params, "count_load": False})
    counting = simulate(asked, cluster(2), SGLANG + "lowest_load", params)
    by_processed = simulate(asked, cluster(2), SGLANG + "processed", {**params, "count_load": False})
    assert shares(was, 2).tolist() == [1.0, 0.0]
    assert shares(counting, 2).tolist() == shares(by_processed, 2).tolist() == [0.5, 0.5]
    assert (most_in_flight(was), most_in_flight(counting), most_in_flight(by_processed)) == (200, 71, 71)
    assert np.quantile(ttft_s(was), 0.99) > 3.0 * np.quantile(ttft_s(counting), 0.99)


def test_sglang_32195_shortest_queue_forgets_where_the_conversation_was():
    """sgl-project/sglang#32195: out of balance, the shortest queue decides alone, and late rounds miss.

    Conversations of ten rounds on four workers, some with long answers, so that loads are often apart. As
    proposed, the longest match among workers within the threshold of the idlest keeps the locality.
    """
    rng = np.random.default_rng(3)
    asks = []
    for talk in range(40):
        start_s = rng.uniform(0.0, 10.0)
        for turn in range(10):
            past = tuple((f"talk {talk} round {k}", 400) for k in range(turn + 1))
            answer_tok = int(rng.choice([20, 400], p=[0.7, 0.3]))
            asks.append(Ask(start_s + 5.0 * turn, past, own_tok=50, output_tok=answer_tok))
    asked = workload(asks)
    late = asked.prompt_tok > 2500
    params = {"balance_abs_threshold": 4.0, "balance_rel_threshold": 1.1}
    was, proposed = (
        simulate(asked, cluster(4), SGLANG + "lowest_load", {**params, "keep_locality": kept})
        for kept in (False, True)
    )
    assert 0.75 < hit_rate(was, late) < 0.76
    assert 0.85 < hit_rate(proposed, late) < 0.86  # of 0.87 that a single cache would have
    assert np.quantile(ttft_s(was), 0.99) > 1.3 * np.quantile(ttft_s(proposed), 0.99)
    assert proposed.figures["load_imbalance"] < 1.04


def test_smg_1621_a_few_long_prompts_and_many_routers_stay_below_the_threshold():
    """smg-project/smg#1621: long contexts fill one engine's KV cache with few requests; N routers see 1/N.

    28,000 tokens a prompt, of which 12,000 are shared, on engines that hold 80,000: at most seventeen
    requests, never 64, pin all traffic to one of four engines. A threshold of 2 requests cures it for one
    router. Of eight routers each counts its own and stays below 2; it takes counts of all of them. (The
    triggers by KV use that SMG has added are off by default and are not simulated.)
    """
    rng = np.random.default_rng(4)
    asked = workload(
        [Ask(at, (("repository", 12_000),), own_tok=16_000, output_tok=200) for at in arrivals(rng, 0.8, 40)]
    )

    def served(threshold: float, routers: int, view: str = "native"):
        params = {"balance_abs_threshold": threshold}
        engines = cluster(4, kv_tok=80_000)
        return simulate(asked, engines, SGLANG + "lowest_load", params, routers=routers, view=view)

    was, lower, eight, shared = served(64.0, 1), served(2.0, 1), served(2.0, 8), served(2.0, 8, "live")
    assert [most_in_flight(each) for each in (was, lower, eight, shared)] == [17, 4, 12, 4]
    assert [shares(each, 4).max() for each in (was, lower, eight, shared)] == [1.0, 0.55, 0.875, 0.4]
    waits_s = [float(np.quantile(ttft_s(each), 0.99)) for each in (was, lower, eight, shared)]
    assert waits_s[0] > 7.0 * waits_s[1]
    assert waits_s[2] > 4.5 * waits_s[3]


def test_vllm_router_179_a_proxy_that_tracks_no_load():
    """vllm-project/router#179: endpoints passed through without counting left seven of eight engines idle.

    All prompts share a system prompt, too short a part to decide by itself, so every request falls back to
    the least loaded: the first of eight zeros. Its KV cache runs over. Counting cures it.
    """
    rng = np.random.default_rng(5)
    asked = workload(
        [Ask(at, (("system", 100),), own_tok=260, output_tok=150) for at in arrivals(rng, 200.0, 600)]
    )
    was, now = (
        simulate(asked, cluster(8, kv_tok=60_000), "vllm_cache_aware", {"count_load": counted})
        for counted in (False, True)
    )
    assert shares(was, 8).tolist() == [1.0] + 7 * [0.0]
    assert (shares(now, 8) == 0.125).all()
    assert most_in_flight(was) == 600
    assert most_in_flight(now) == 75
    assert was.figures["preemptions"] > 100
    assert now.figures["preemptions"] == 0


def test_vllm_router_299_a_pool_without_loads_and_without_a_tree():
    """vllm-project/router#299 (and PR #70): found by discovery, a prefill pool had neither loads nor a tree.

    There is one pool here, the one that prefills. A threshold that no match can exceed stands for the tree
    that was not there. Loads alone cure the balance, the tree brings the hits back.
    """
    rng = np.random.default_rng(6)
    asked = workload(
        [
            Ask(at, ((f"document {rng.integers(12)}", 1500),), own_tok=100, output_tok=50)
            for at in arrivals(rng, 12.0, 300)
        ]
    )
    neither, loads, both = (
        simulate(asked, cluster(4, kv_tok=12_000), "vllm_cache_aware", params)
        for params in ({"count_load": False, "cache_threshold": 1.0}, {"cache_threshold": 1.0}, {})
    )
    assert shares(neither, 4).tolist() == [1.0, 0.0, 0.0, 0.0]
    assert shares(loads, 4).max() < 0.27
    assert hit_rate(loads) < 0.5
    assert hit_rate(both) > 0.89
    p99_s = [float(np.quantile(ttft_s(each), 0.99)) for each in (neither, loads, both)]
    assert p99_s[0] > 80.0 * p99_s[1]
    assert p99_s[1] > 1.7 * p99_s[2]


# --- production-stack ---------------------------------------------------------------------------------------


def replayed(
    router: str, params: dict, requests: int, restart_at: int | None = None
) -> tuple[int, list[int]]:
    """Tokens in a router's tree after so many requests, and its choices; it may restart on the way."""
    rng = np.random.default_rng(12)
    asked = workload(
        [
            Ask(at, ((f"document {k % 40}", 320),), own_tok=600)
            for k, at in enumerate(arrivals(rng, 4.0, requests))
        ]
    )
    replay = Replay(asked, 4, router, params)
    chosen = []
    for i in range(requests):
        if i == restart_at:
            replay = Replay(asked, 4, router, params)
            replay.view.rng[:] = stream(1, 0, "routing")  # another process draws other numbers
        chosen.append(replay.decide(i, int(asked.arrival_s[i] * 1e12)))
    return int(replay.view.list[:, 2].sum()), chosen


def test_production_stack_687_a_trie_that_never_forgets():
    """vllm-project/production-stack#687: the trie of prompts grows with every request until memory is out.

    Then the router restarts and knows nothing: a prompt goes where its prefix is by chance only. Memory as
    such is not simulated; what is measured is the tokens that the router remembers. A tree with a budget a
    worker, cut down on a timer, stays small.
    """
    stack, sglang = "production_stack_prefixaware", SGLANG + "lowest_load"
    grown = [replayed(stack, {}, requests)[0] for requests in (400, 800)]
    assert grown == [400 * 600 + 40 * 320, 800 * 600 + 40 * 320]
    budget = {"max_tree_size": 4 * 20_000, "eviction_interval_s": 5.0}  # characters: 20,000 tokens a worker
    kept = [replayed(sglang, budget, requests)[0] for requests in (400, 800)]
    assert max(kept) < 4 * 20_000

    _, chosen = replayed(stack, {}, 160, restart_at=80)
    before, first_after = chosen[40:80], chosen[80:120]
    assert chosen[:40] == before  # every document stays with its engine
    assert sum(old == new for old, new in zip(before, first_after, strict=True)) < 20
    assert chosen[120:] == first_after


def test_production_stack_990_what_falls_back_is_never_inserted():
    """vllm-project/production-stack#990: with a least match required, a fallback left no trace in the trie.

    So no prompt ever matched and affinity never started. Inserting on fallback cures it.
    """
    rng = np.random.default_rng(13)
    asked = workload(
        [
            Ask(at, ((f"document {rng.integers(8)}", 1600),), own_tok=60, output_tok=30)
            for at in arrivals(rng, 6.0, 240)
        ]
    )
    was, now = (
        simulate(
            asked,
            cluster(4, kv_tok=8_000),
            "production_stack_prefixaware",
            {"min_match_length": 1024, "insert_on_fallback": inserted},
        )
        for inserted in (False, True)
    )
    assert shares(was, 4).tolist() == [0.25, 0.25, 0.25, 0.25]  # by requests a minute, nothing else
    assert 0.54 < hit_rate(was) < 0.55
    assert 0.93 < hit_rate(now) < 0.94


# --- vLLM's balancer of data-parallel ranks -----------------------------------------------------------------


def test_tpu_inference_3307_any_hit_before_any_load():
    """vllm-project/tpu-inference#3307: a rank with any hit had priority, however small and however loaded.

    Groups of 16 samples of one prompt, behind a short system prompt that all share: whole groups go to one
    rank, and the first rank that has the system prompt gets every group. A threshold on the share lets groups
    spread but still pins each to a rank; a guard on the loads splits them.
    """
    asked = make(
        "group_sampling",
        requests=320,
        samples=16,
        system_tok=200,
        prompt_tok=500.0,
        output_tok=200.0,
        rate_rps=6.0,
        seed=16,
    )
    group = np.arange(320) // 16

    def on_one_rank(result) -> float:
        ranks = result.columns["replica"]
        return float(np.mean([len(set(ranks[group == k])) == 1 for k in range(20)]))

    any_hit, by_share, guarded = (
        simulate(asked, cluster(4), router, caches="approximate")
        for router in ("prefix_affinity", "affinity_threshold", "cache_aware_guard")
    )
    assert shares(any_hit, 4).tolist() == [1.0, 0.0, 0.0, 0.0]
    assert shares(by_share, 4).max() == 0.3
    assert [on_one_rank(each) for each in (any_hit, by_share, guarded)] == [1.0, 1.0, 0.05]
    assert np.quantile(latency_s(any_hit), 0.99) > 3.2 * np.quantile(latency_s(by_share), 0.99)
    assert latency_s(guarded).mean() < 0.9 * latency_s(by_share).mean()
