"""Public reports of routers that went wrong, as scenarios: Dynamo's, the inference extension's and llm-d's.

Each shows the fault with the policy as it was, and what cures it.
"""

from __future__ import annotations

import msgspec
import numpy as np

import fastsim
from fastsim import simulate
from fastsim.cluster.routers import ROUTERS
from fastsim.cluster.routers.view import PROMPT_TOK
from fastsim.cluster.step_time import StepTime
from fastsim.stats import mean_interval
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

# --- Dynamo -------------------------------------------------------------------------------------------------


def test_dynamo_737_a_common_system_prompt_pins_everybody():
    """ai-dynamo/dynamo#737: users have only the system prompt in common, yet one of eight instances got all.

    In the cost of early 2025 twice the share cached outweighs the use of the KV cache for as long as nobody
    queues. A second instance gets the prompt where a request comes before the events of the first are out,
    and then these two get all. Blocks that requests in flight hold, which the later cost adds, send users to
    other instances; how much that saves depends on the arrivals.
    """
    slower: list[float] = []
    for seed in range(7, 13):
        at_s = arrivals(np.random.default_rng(seed), 6.0, 200)
        asked = workload([Ask(at, (("system", 3000),), own_tok=150, output_tok=60) for at in at_s])
        was, now = (simulate(asked, cluster(8), router) for router in ("dynamo_v01", "dynamo_kv"))
        assert (shares(was, 8) > 0.0).sum() <= 2
        assert most_in_flight(was) >= most_in_flight(now)
        slower.append(latency_s(was).mean() / latency_s(now).mean())
    assert mean_interval(slower).low > 1.0


def test_dynamo_589_routers_that_read_the_same_metrics_choose_the_same_worker():
    """ai-dynamo/dynamo#589: between two polls 16 routers all think that the same worker is the best.

    Sixteen requests at once in each of 25 polling periods. In most of them all sixteen go to one of eight
    workers. Metrics that are never old cure it, or a router that counts what it has sent; of sixteen such
    routers each counts only its own, and workers still get a few at once.
    """
    rng = np.random.default_rng(8)
    period = np.repeat(np.arange(25), 16)
    asked = workload(
        [Ask(1.2 * k + 0.6, own_tok=500, output_tok=int(rng.integers(200, 400))) for k in period]
    )

    def at_once(router: str, routers: int, view: str = "native") -> list[int]:
        chosen = simulate(asked, cluster(8), router, routers=routers, view=view).columns["replica"]
        return [int(np.bincount(chosen[period == k]).max()) for k in range(25)]

    assert at_once("dynamo_v01", 16).count(16) == 22
    assert max(at_once("dynamo_v01", 16, "live")) == 2
    assert max(at_once("dynamo_kv", 1)) == 3
    own = at_once("dynamo_kv", 16)
    assert max(own) == 5
    assert np.mean(own) > 1.3 * np.mean(at_once("dynamo_kv", 1))


def test_dynamo_7753_a_busy_threshold_against_what_one_frontend_sees():
    """ai-dynamo/dynamo#7753: the value compared was overwritten with one frontend's own view, 1 % for 99 %.

    A limit of 16 requests in flight a replica stands for the share of blocks in use. With sixteen frontends
    of which each sees its own requests nothing is ever refused and everybody waits; the same limit against
    what all have in flight, or behind a single frontend, keeps the time to first token.
    """
    rng = np.random.default_rng(9)
    asked = workload([Ask(at, own_tok=1500, output_tok=100) for at in arrivals(rng, 40.0, 500)])
    was, shared, single = (
        simulate(asked, cluster(4), "least_loaded", routers=routers, view=view, most_load=16.0)
        for routers, view in ((16, "own"), (16, "live"), (1, "own"))
    )
    assert was.figures["rejected"] == 0.0
    assert most_in_flight(was) == 131
    assert shared.figures["rejected"] == single.figures["rejected"] == 0.616
    assert np.quantile(ttft_s(was), 0.99) > 11.0 * np.nanquantile(ttft_s(shared), 0.99)


def test_dynamo_7340_a_worker_with_phantom_load_never_recovers():
    """ai-dynamo/dynamo#7340: lost requests were let go only when their worker got the next one.

    Reports that come after the end of the run stand for ends that nobody hears of. The worker that was sent a
    very long prompt first looks busier than the other for ever, gets nothing, and so is never cleaned up; the
    other is, at each of its requests. A sweep by the clock cures it.
    """
    rng = np.random.default_rng(10)
    others = [Ask(at, own_tok=500, output_tok=20) for at in arrivals(rng, 4.0, 400, start_s=1.0)]
    asked = workload([Ask(0.0, own_tok=60_000), *others])
    was, now = (
        simulate(asked, cluster(2), "dynamo_kv", {"expiry_s": 10.0, "sweep_s": sweep_s}, view="delayed(1000)")
        for sweep_s in (0.0, 10.0)
    )
    first = was.columns["replica"][0]
    assert np.count_nonzero(was.columns["replica"] == first) == 1
    assert 0.48 < shares(now, 2, since_s=40.0)[first] < 0.52


def test_dynamo_12300_overlap_alone_starves_a_worker_that_joins():
    """ai-dynamo/dynamo#12300, PR #10574: short agentic requests crowd on warm workers, a new one gets little.

    Agents share 8,000 tokens; the third worker joins after 8 s and has none of them. A cost for every active
    request, or credit for overlap that fades with a worker's lead in active prefill, gives it its third.
    """
    rng = np.random.default_rng(11)
    asked = workload(
        [Ask(at, (("agent", 8000),), own_tok=600, output_tok=20) for at in arrivals(rng, 16.0, 480)]
    )
    late = asked.arrival_s > 8.0
    was, by_requests, fading = (
        simulate(asked, cluster(3, joins_s=[8.0]), "dynamo_kv", params)
        for params in ({}, {"request_weight": 100.0}, {"credit_decay": 16.0})
    )
    new = [shares(each, 3, since_s=8.0)[2] for each in (was, by_requests, fading)]
    assert 0.15 < new[0] < 0.17
    assert min(new[1:]) > 0.31
    for cured in (by_requests, fading):
        assert latency_s(was, late).mean() > 1.3 * latency_s(cured, late).mean()
        assert hit_rate(cured) > 0.92


# --- Gateway API Inference Extension ------------------------------------------------------------------------


def documents(seed: int, requests: int, count: int) -> list[Ask]:
    """Questions about so many documents, each equally likely."""
    rng = np.random.default_rng(seed)
    names = [f"document {k}" for k in rng.integers(count, size=requests)]
    times = arrivals(rng, 12.0, requests)
    return [
        Ask(at, ((name, 1600),), own_tok=60, output_tok=30) for at, name in zip(times, names, strict=True)
    ]


def test_inference_extension_2699_an_index_by_pod_where_caches_are_by_rank():
    """kubernetes-sigs/gateway-api-inference-extension#2699: pods of two ranks, each with a cache of its own.

    By the index a pod has the prefix, but which of its two ranks does is left to chance: one replica stands
    for a pod when it is chosen, and the pod's requests are then served by two, in turn. Most documents have
    to be computed twice. An index by rank, eight replicas, finds them.
    """
    asks = documents(14, requests=480, count=80)
    asked = workload(asks)
    by_rank = simulate(asked, cluster(8), "epp")
    pod = simulate(asked, cluster(4, kv_tok=800_000), "epp").columns["replica"]
    hit_tok = 0
    for k in range(4):
        of_pod = workload([asks[i] for i in np.flatnonzero(pod == k)])
        hit_tok += simulate(of_pod, cluster(2), "round_robin").columns["hit_tok"].sum()
    assert 0.80 < hit_rate(by_rank) < 0.81
    assert 0.65 < hit_tok / asked.prompt_tok.sum() < 0.66


def test_inference_extension_2391_decode_pods_get_credit_for_caches_they_do_not_build():
    """kubernetes-sigs/gateway-api-inference-extension#2391: where pods only decode, prefixes must not count.

    Prefill costs nothing here, as if blocks came from elsewhere, so a match is worth nothing. Credited all
    the same, it sends every popular prompt to the same few pods. Without the credit they are balanced.
    """
    rng = np.random.default_rng(15)
    asked = workload(
        [
            Ask(at, ((f"document {min(rng.zipf(1.6), 20)}", 1600),), own_tok=60, output_tok=200)
            for at in arrivals(rng, 12.0, 400)
        ]
    )
    decoding = cluster(4, step_time=StepTime.linear(0.01, 0.0, 0.004), max_batch_tok=60_000, kv_tok=200_000)
    was, now = (simulate(asked, decoding, "epp", {"prefix": weight}) for weight in (3.0, 0.0))
    assert shares(was, 4).max() > 0.55
    assert shares(now, 4).max() < 0.28
    assert np.quantile(latency_s(was), 0.99) > 2.4 * np.quantile(latency_s(now), 0.99)


def test_inference_extension_2591_the_picker_of_the_best_makes_hot_spots():
    """kubernetes-sigs/gateway-api-inference-extension#2591: until the next scrape the best pod stays it.

    Twelve requests at once, thirty times: all twelve go to one of six pods, every time. Picking at random by
    weight spreads them.
    """
    rng = np.random.default_rng(16)
    burst = np.repeat(np.arange(30), 12)
    asked = workload(
        [
            Ask(0.5 * k + 0.3, (("system", 640),), own_tok=600, output_tok=int(rng.integers(20, 200)))
            for k in burst
        ]
    )
    best, random = (
        simulate(asked, cluster(6), "epp", {"picker": picker}) for picker in ("max_score", "weighted_random")
    )

    def at_once(result) -> list[int]:
        return [int(np.bincount(result.columns["replica"][burst == k]).max()) for k in range(30)]

    assert at_once(best) == 30 * [12]
    assert max(at_once(random)) == 5
    assert np.quantile(ttft_s(best), 0.99) > 6.0 * np.quantile(ttft_s(random), 0.99)
    assert best.figures["load_imbalance"] > 2.7
    assert random.figures["load_imbalance"] < 1.05


# --- llm-d --------------------------------------------------------------------------------------------------


class Decider(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of `remote_prefill`."""

    tier_weight: float = 1.0  # of a cached block: 1, or by mistake the score of the tier that holds it
    non_cached_tok: int = 512  # so many tokens to compute are worth a remote prefill


def remote_prefill(view, request):
    """Replica 0 prefills, the others decode: to the longest match, unless too much is missing there."""
    best = 1
    for r in range(2, view.load.shape[0]):
        if view.match[r] > view.match[best]:
            best = r
    if request < 8:  # the first round is computed where it is decoded
        return 1 + request % (view.load.shape[0] - 1)
    cached_tok = view.params[0] * view.match[best]
    return 0 if view.prompt[PROMPT_TOK] - cached_tok >= view.params[1] else best


def test_llm_d_1466_a_tiers_score_taken_for_a_count_of_blocks():
    """llm-d/llm-d#1466: prompts cached on the CPU count 0.8 a block, and so look a fifth less cached.

    Caches have one tier here, which stands for the CPU's, and the decision between local and remote prefill
    is a policy of this test: replica 0 stands for the prefill pool. Of 4,100 tokens 100 are missing, but by
    the score 900, above the limit of 512: everything is sent away and computed again. With counts all stays.
    """
    rng = np.random.default_rng(17)
    first = [Ask(0.01 * k, ((f"document {k}", 4000),), own_tok=100, output_tok=1) for k in range(8)]
    later = [
        Ask(at, ((f"document {rng.integers(8)}", 4000),), own_tok=100, output_tok=20)
        for at in arrivals(rng, 6.0, 240, start_s=10.0)
    ]
    asked = workload([*first, *later])
    fastsim.router("remote_prefill", needs=["matches"], params=Decider)(remote_prefill)
    try:
        was, now = (
            simulate(asked, cluster(4), "remote_prefill", {"tier_weight": weight}) for weight in (0.8, 1.0)
        )
    finally:
        del ROUTERS["remote_prefill"]
    assert shares(was, 4, since_s=10.0).tolist() == [1.0, 0.0, 0.0, 0.0]
    assert shares(now, 4, since_s=10.0)[0] == 0.0
    recomputed = [int((asked.prompt_tok - each.columns["hit_tok"])[8:].sum()) for each in (was, now)]
    assert recomputed[0] > 2.0 * recomputed[1]
