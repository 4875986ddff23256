"""The figures of the lecture's code 02 (affinity against balance) and of its step time beside ours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from fastsim.cluster.step_time import StepTime
from fastsim.hardware import kv_capacity_tok
from fastsim.lecture import cluster_runs as runs
from fastsim.lecture.cluster_runs import (
    Bench,
    Policy,
    Sample,
    Traffic,
    again,
    difference,
    judged,
    overloaded,
    ratio,
    shown,
    variant,
)
from fastsim.lecture.verdicts import Row, claim, exact, measured
from fastsim.stats import Interval, mean_interval

__all__ = ["code_02", "prefill_s", "step_time", "step_times"]

GPU, MODEL = "a6000", "mistral-7b"
TURNS = Policy("round robin", "round_robin")
QUEUE = Policy("shortest queue", "least_loaded")
WORK = Policy("least work left", "least_work")
LOAD_ONLY = (TURNS, Policy("random", "random"), QUEUE, Policy("best of two", "power_of_two"), WORK)
PURE = Policy("pure affinity", "prefix_affinity")
HALF = Policy("affinity over half", "affinity_threshold")
GUARD = Policy("affinity with guard", "cache_aware_guard")
THETAS = (0.1, 0.25, 0.5, 0.75, 0.9)
ALL = (1.0, 1.0)
RATES = "the lecture does not say at which rate"
ASSUMED = "the workload's parameters are assumed"


def code_02(workers: int = 1, rel_half_width: float = runs.HALF_WIDTH) -> list[Row]:
    """Simulate all that code 02 of the lecture shows (A1 to A7), and its step time (S1 to S5).

    Parameters
    ----------
    workers : int
        Threads; the result does not depend on it.
    rel_half_width : float
        To which every mean latency is known, with 95 % confidence.
    """
    bench = Bench(workers, rel_half_width)
    return [
        *step_times(),
        *_long_documents(bench),
        *_other_workloads(bench),
        *_thresholds(bench),
        *_more_replicas(bench),
        *_hot_tool(bench),
    ]


# --- the step time ------------------------------------------------------------------------------------------


def step_time() -> StepTime:
    """The lecture's: the roofline of Mistral-7B on an A6000."""
    return StepTime.roofline(GPU, MODEL)


def prefill_s(tokens: int, cached_tok: int = 0) -> float:
    """Time to compute so many tokens of a prompt in one step, after those that are cached."""
    return step_time().seconds(tokens, tokens * cached_tok + tokens * (tokens + 1) // 2, 0, cached_tok)


def step_times() -> Iterator[Row]:
    """S1 to S5."""
    for id, tokens, said, decimals in (
        ("S1", 2_100, 0.2817, 4),
        ("S2", 2_000, 0.27, 2),
        ("S3", 21_000, 3.77, 2),
    ):
        yield exact(id, f"prefill of {tokens:,} tokens", "s", said, prefill_s(tokens), decimals)
    yield exact("S4", "one decode token, short context", "ms", 24.0, 1e3 * step_time().seconds(0, 1, 1, 1), 0)
    yield exact("S5", "KV capacity", "tokens", 219_089, kv_capacity_tok(GPU, MODEL), 0)


# --- A1 to A4 -----------------------------------------------------------------------------------------------


def _best(samples: dict[str, Sample]) -> Sample:
    """Of the policies that look at loads only, the one with the least mean latency."""
    loads = (samples[policy.name] for policy in LOAD_ONLY if policy.name in samples)
    best = min(loads, key=lambda sample: float(sample["mean"].mean()))
    return replace(best, policy=replace(best.policy, name=f"best by load ({best.policy.name})"))


def _long_documents(bench: Bench) -> Iterator[Row]:
    """A1 to A4 on long documents."""
    found = bench(runs.documents(), (*LOAD_ONLY, PURE, HALF, GUARD))
    best, half = _best(found), found[HALF.name]
    yield shown("A1", best, "hit", 0.33, note="the best is the one of the least mean latency")
    yield shown("A1", half, "hit", 0.58)
    yield difference("A1", half, best, 0.25, 2, note="0.58 less 0.33")
    yield _spread("A1", half["hit"], "hit rate of affinity over half")
    for sample in (*(found[policy.name] for policy in LOAD_ONLY), half):
        yield shown("A2", sample, "mean")
    yield ratio("A2", best, half, 1.8)
    yield again(ratio("A2", found[QUEUE.name], half, 1.8), "without an oracle of lengths")
    yield _spread("A2", found[QUEUE.name]["mean"] / half["mean"], "latency ratio")
    yield shown("A3", found[TURNS.name], "copies", 1.34, note="at the end of a run")
    yield shown("A3", half, "copies")
    yield judged("A4", found[PURE.name], "busiest", "every request to one replica", ALL)
    ten_times = bench(runs.documents(duration_s=6_000.0), (TURNS, HALF))
    for sample in ten_times.values():
        yield shown("A1", sample, "hit", note="runs ten times as long as the lecture's")


def _spread(id: str, values: runs.Array, what: str) -> Row:
    """How far single runs of the lecture's length stray: their standard deviation."""
    from scipy.special import chdtri

    n = len(values)
    about = float(values.std(ddof=1))
    low, high = (about * float(np.sqrt((n - 1) / chdtri(n - 1, p))) for p in (0.025, 0.975))
    found = Interval(about, low, high, n)
    quantity = f"standard deviation of single runs, {what}"
    return measured(id, quantity, "", None, found, note=f"{n:,} runs, chi-square interval")


def _other_workloads(bench: Bench) -> Iterator[Row]:
    """A2 and A4 on videos and tools, at several rates, and the conclusion under other parameters."""
    for traffics in (map(runs.videos, (4.0, 6.0, 7.0, 8.0)), map(runs.tools, (10.0, 20.0, 30.0))):
        for k, traffic in enumerate(traffics):
            found = bench(traffic, (TURNS, QUEUE, WORK, PURE, HALF))
            note = f"{RATES}; {ASSUMED}"
            yield ratio("A2", _best(found), found[HALF.name], "1.4 to 2.3", (1.35, 2.35), note=note)
            row = judged("A4", found[PURE.name], "busiest", "every request to one replica", ALL)
            yield again(row, "at another rate") if k else row
    for traffic in _variants():
        found = bench.brief(traffic, (QUEUE, WORK, HALF))
        note = "whatever is assumed, affinity over half is faster: above 1"
        yield variant(ratio("A2", _best(found), found[HALF.name], "lower latency", (1.0, np.inf), note=note))


def _variants() -> Iterator[Traffic]:
    """The assumed parameters of videos and tools, one by one, up and down."""
    video, tool = runs.videos(6.0), runs.tools(20.0)
    for zipf in (0.9, 1.3):
        yield video.but(f"Zipf {zipf:g}", zipf=zipf)
        yield tool.but(f"Zipf {zipf:g}", zipf=zipf)
    for items in (500, 2_000):
        yield video.but(f"{items:,} videos", videos=items)
    for items in (250, 1_000):
        yield tool.but(f"{items:,} tools", tools=items)
    for system_tok in (150, 600):
        yield tool.but(f"system prompt of {system_tok}", system_tok=system_tok)


# --- A5 -----------------------------------------------------------------------------------------------------


def _thresholds(bench: Bench) -> Iterator[Row]:
    """A5: the share of the prompt above which affinity wins."""
    policies = [Policy(f"threshold {theta:g}", HALF.router, {"theta": theta}) for theta in THETAS]
    long = runs.documents()
    for traffic in (long, runs.videos(4.0), runs.tools(20.0)):
        found = bench(traffic, policies)
        lowest, quarter, half, three_quarters, highest = found.values()
        yield _herding(lowest)
        note = "'almost the same' is read as within a tenth"
        for sample in (quarter, three_quarters):
            yield ratio("A5", sample, half, "almost the same", (0.9, 1.1), note=note)
        if traffic is long:
            yield difference("A5", highest, half, "loses many", (-1.0, -0.05), note="read as 0.05 and more")
        else:
            yield shown("A5", highest, "hit")
    for system_tok in (3_000, 6_000):
        traffic = long.but(f"system prompt of {system_tok:,}", system_tok=system_tok)
        yield variant(_herding(bench.brief(traffic, policies[:1])[policies[0].name]))


def _herding(sample: Sample) -> Row:
    """Whether all go to one replica, and how many prompts the system prompt alone would send there."""
    asked = [runs.requests(sample.traffic, replicate) for replicate in range(10)]
    share = np.concatenate([float(each.symbol_tok[0]) / each.prompt_tok for each in asked])
    herds = float((sample["busiest"] >= 0.9).mean())
    note = (
        f"the system prompt is {share.mean():.1%} of a prompt on average, above a tenth in "
        f"{(share > 0.1).mean():.1%}; each that is not above goes to the least loaded replica, which then "
        f"matches as well; {herds:.0%} of the runs herd, read as 0.9 and more"
    )
    return judged("A5", sample, "busiest", "herds again", (0.9, np.inf), note)


# --- A6 and A7 ----------------------------------------------------------------------------------------------


def _more_replicas(bench: Bench) -> Iterator[Row]:
    """A6: replicas, with the rate in proportion."""
    found = {
        replicas: bench(runs.documents(replicas / 4.0), (TURNS, HALF), replicas=replicas)
        for replicas in (2, 4, 8)
    }
    for replicas, samples in found.items():
        note = f"{replicas} replicas"
        yield shown("A6", samples[TURNS.name], "hit", 0.32, note=f"{note}; 'near 0.32'")
        yield shown("A6", samples[HALF.name], "hit", 0.58 if replicas == 4 else None, note=note)
    for fewer, more in ((2, 4), (4, 8)):
        yield _growth(found[fewer][HALF.name], found[more][HALF.name], fewer, more, "climbs", (0.02, 1.0))
    yield _growth(found[2][TURNS.name], found[8][TURNS.name], 2, 8, "stays near 0.32", (-0.02, 0.02))


def _growth(few: Sample, many: Sample, fewer: int, more: int, words: str, wanted: tuple[float, float]) -> Row:
    """How much the hit rate grows with the replicas; other rates, so nothing is paired."""
    a, b = mean_interval(few["hit"]), mean_interval(many["hit"])
    half = float(np.hypot(a.half_width, b.half_width))
    grown = b.value - a.value
    found = Interval(grown, grown - half, grown + half, min(a.n, b.n))
    note = f"{a.n:,} and {b.n:,} runs; we take it as {wanted[0]:g} to {wanted[1]:g}"
    quantity = f"hit rate with {more} replicas less that with {fewer}, {few.policy.name}, documents"
    return claim("A6", quantity, words, found, wanted, note)


def _hot_tool(bench: Bench) -> Iterator[Row]:
    """A7: one tool has two fifths of the traffic, and a replica can take an eighth."""
    traffic = runs.hot_tool()
    found = bench(traffic, (TURNS, QUEUE, WORK, HALF, GUARD), replicas=8)
    best, half, guard = _best(found), found[HALF.name], found[GUARD.name]
    note = "a replica's part is 0.125; we take twice that as overload"
    yield judged("A7", half, "busiest", "overloads one replica", (0.25, 1.0), note)
    yield overloaded("A7", half, "overloads one replica", True)
    yield ratio("A7", half, best)
    yield shown("A7", guard, "hit", 0.84)
    yield difference("A7", guard, half, "affinity's", (-0.01, 0.01), note="'as high' is read as within 0.01")
    for sample in (found[QUEUE.name], best, half, guard):
        yield shown("A7", sample, "mean")
    yield ratio("A7", guard, best, "below load-only", (0.0, 1.0))
    others = [runs.hot_tool(share=share) for share in (0.3, 0.5)]
    others += [runs.hot_tool(rate_rps=rate_rps) for rate_rps in (50.0, 90.0)]
    others += [traffic.but(f"{tools:,} tools", tools=tools) for tools in (250, 1_000)]
    for other in others:
        found = bench.brief(other, (QUEUE, WORK, GUARD), replicas=8)
        note = f"{ASSUMED}: the conclusion under others"
        row = ratio("A7", found[GUARD.name], _best(found), "below load-only", (0.0, 1.0), note=note)
        yield variant(row)
