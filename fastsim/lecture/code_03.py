"""The figures of the lecture's code 03 (Preble) beside ours.

The lecture leaves open at which rates, windows and readings of pairing it has its figures; where it does, we
show several.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fastsim.lecture import cluster_runs as runs
from fastsim.lecture import load_terms, one_request
from fastsim.lecture.cluster_runs import (
    Bench,
    Policy,
    Sample,
    Traffic,
    judged,
    overloaded,
    ratio,
    shown,
    variant,
)
from fastsim.lecture.verdicts import Row, claim, measured, middle
from fastsim.stats import Interval, mean_interval, paired_ratio

__all__ = ["FULL", "GROUPS", "calm", "code_03"]

GROUPS = {"order": "priority_groups"}
# As the lecture has it: SGLang's rules of a long queue and of shared prefixes never apply.
LONGEST = {"order": "longest_prefix", "order_params": {"most_waiting": 1_000_000, "check_tok": -1}}
REBALANCE = {"rebalance": True}
FULL = {**REBALANCE, "pairing": True}

TURNS = Policy("round robin", "round_robin")
QUEUE = Policy("shortest queue", "least_loaded")
HALF = Policy("affinity over half", "affinity_threshold")
GUARD = Policy("affinity with guard", "cache_aware_guard")
E2 = Policy("E2", "e2")
BALANCED = Policy("E2 + rebalance", "e2", REBALANCE)
QUEUED = Policy("E2 + rebalance + priority groups", "e2", REBALANCE, GROUPS)
PREBLE = Policy("Preble", "e2", FULL, GROUPS)

# Workload -> its traffics, from low rates to high.
WORKLOADS = {
    "documents": tuple(map(runs.documents, (0.5, 1.0, 1.5, 2.0))),
    "video": tuple(map(runs.videos, (4.0, 6.0, 8.0))),
    "tools": tuple(map(runs.tools, (10.0, 20.0, 30.0))),
    "agents": tuple(map(runs.agents, (10.0, 20.0, 30.0))),
    "programming": tuple(map(runs.programs, (2.0, 4.0, 6.0, 8.0))),
}
BUDGETS = (512, 1_024, 4_096, 8_192)  # tokens a step, beside the 2,048 of all else
ABOVE, BELOW = (1.0, np.inf), (0.0, 1.0)
RATES = "the lecture does not say at which rate"

Table = dict[str, dict[str, Sample]]  # traffic's name -> policy's name -> sample


def code_03(workers: int = 1, rel_half_width: float = runs.HALF_WIDTH) -> list[Row]:
    """Simulate all that code 03 of the lecture shows (P1 to P10).

    Parameters
    ----------
    workers : int
        Threads; the result does not depend on it.
    rel_half_width : float
        To which every mean latency is known, with 95 % confidence.
    """
    bench = Bench(workers, rel_half_width)
    policies = (TURNS, GUARD, BALANCED, QUEUED, PREBLE)
    found = {each.name: bench(each, policies) for traffics in WORKLOADS.values() for each in traffics}
    return [
        *_workloads(bench, found),
        *_documents(bench, found),
        *_videos(bench, found),
        *_load_cost(bench),
        *_pairing(bench),
        *_rebalancing(bench),
        *_window(bench),
        *_local_order(bench),
        *one_request.routed("P9"),
        *one_request.quotas_row("P10"),
    ]


# --- P1 -----------------------------------------------------------------------------------------------------


def _workloads(bench: Bench, found: Table) -> Iterator[Row]:
    """P1: means and P99 of everything, what Preble gains, and where it gains most."""
    for samples in found.values():
        for policy in (TURNS, GUARD, BALANCED, PREBLE):
            yield shown("P1", samples[policy.name], "mean")
            yield shown("P1", samples[policy.name], "p99")
    gains = {name: paired_ratio(s[TURNS.name]["mean"], s[PREBLE.name]["mean"]) for name, s in found.items()}
    yield from _extremes(found, gains)
    most = {name: _largest(traffics, found, gains) for name, traffics in WORKLOADS.items()}
    for high, low, words in (
        *(
            (high, low, "gains most")
            for high in ("documents", "video")
            for low in ("tools", "agents", "programming")
        ),
        *((high, "programming", "programming gains least") for high in ("tools", "agents")),
    ):
        quantity = f"largest gain on {high} / on {low}"
        note = (
            f"{most[high].n:,} and {most[low].n:,} runs, each at its rate of the largest gain of those that "
        )
        note += "neither policy is overloaded at"
        note += "; what agents and programs share is assumed" if words == "programming gains least" else ""
        yield claim("P1", quantity, words, _over(most[high], most[low]), ABOVE, note)
    for name in ("tools", "agents"):
        note = (
            f"{most[name].n:,} runs; the largest gain of its rates without overload; we take 'little' as a "
            "gain of at most twice as fast"
        )
        yield claim("P1", f"largest gain on {name}", "little", most[name], (1.0, 2.0), note)
    yield from _longer(bench, found, gains)


def _largest(traffics: tuple[Traffic, ...], found: Table, gains: Mapping[str, Interval]) -> Interval:
    """The largest gain of the traffics at which neither round robin nor Preble is overloaded."""
    calm = [t for t in traffics if all(found[t.name][p.name].stable for p in (TURNS, PREBLE))]
    return max((gains[each.name] for each in calm), key=lambda gain: gain.value)


def _extremes(found: Table, gains: Mapping[str, Interval]) -> Iterator[Row]:
    """The lecture's range of baseline / Preble."""
    for name, said in (
        (min(gains, key=lambda name: gains[name].value), 1.0),
        (max(gains, key=lambda name: gains[name].value), 31.2),
    ):
        samples = found[name]
        unpaired = paired_ratio(samples[TURNS.name]["mean"], samples[QUEUED.name]["mean"]).value
        note = (
            f"the {'smallest' if said == 1.0 else 'largest'} of all settings; {unpaired:.2f} without pairing"
        )
        yield ratio("P1", samples[TURNS.name], samples[PREBLE.name], said, 1, note=note)


def _longer(bench: Bench, found: Table, gains: Mapping[str, Interval]) -> Iterator[Row]:
    """Where the gain is largest the baseline is overloaded, and the gain grows with the run."""
    name = max(gains, key=lambda name: gains[name].value)
    traffic = found[name][TURNS.name].traffic
    twice = Traffic(f"{name} for twice as long", traffic.workload, traffic.params, 2 * traffic.duration_s)
    longer = bench(twice, (TURNS, PREBLE))
    gain = paired_ratio(longer[TURNS.name]["mean"], longer[PREBLE.name]["mean"])
    state = "stable" if found[name][TURNS.name].stable else "overloaded"
    note = f"{gain.n:,} runs; the baseline is {state} there; read as other by a tenth and more"
    quantity = f"round robin / Preble, mean latency, {name}, runs twice as long / as long as the lecture's"
    yield claim("P1", quantity, "depends on the run's length", _over(gain, gains[name]), (1.1, np.inf), note)


def _over(a: Interval, b: Interval) -> Interval:
    """A ratio of two positive estimates from different runs, with limits that are safe: corner by corner."""
    return Interval(a.value / b.value, a.low / b.high, a.high / b.low, min(a.n, b.n))


# --- P2 and P3 ----------------------------------------------------------------------------------------------


def _documents(bench: Bench, found: Table) -> Iterator[Row]:
    """P2: the guard does better than Preble at a low rate; with other chunk budgets the figures fail."""
    samples = found["documents 1/s"]
    guard, preble = samples[GUARD.name], samples[PREBLE.name]
    yield shown("P2", guard, "mean", 3.88)
    yield shown("P2", preble, "mean", 5.35)
    yield ratio("P2", guard, preble, "better", BELOW)
    for policy in (BALANCED, QUEUED):
        yield shown("P2", samples[policy.name], "mean", note="without pairing, which is what costs")
    high = found["documents 2/s"]
    note = "the lecture has Preble ahead at the highest rates only"
    yield ratio("P2", high[GUARD.name], high[PREBLE.name], "worse at the highest rates", ABOVE, note=note)
    for budget in BUDGETS:
        other = bench.brief(runs.documents(), (GUARD, PREBLE), max_batch_tok=budget)
        for policy, said in ((GUARD, 3.88), (PREBLE, 5.35)):
            yield _budget("P2", other[policy.name], budget, said)


def _budget(id: str, sample: Sample, budget: int, said: float) -> Row:
    """A figure of the lecture under another chunk budget, which no verdict can be about."""
    low, high = middle(sample["mean"])
    where = "inside" if low <= said <= high else "outside"
    note = f"the lecture's {said:g} is {where} the spread of single runs, {low:.2f} to {high:.2f}"
    quantity = f"mean latency, {sample.policy.name}, {sample.traffic.name}, {budget:,} tokens a step"
    return measured(id, quantity, "s", None, mean_interval(sample["mean"]), note=f"{sample.effort}; {note}")


def _videos(bench: Bench, found: Table) -> Iterator[Row]:
    """P3: of what the full system gains on videos, most is the queue inside the replicas."""
    samples = found["video 8/s"]
    balanced, queued, preble = (samples[policy.name] for policy in (BALANCED, QUEUED, PREBLE))
    yield shown("P3", balanced, "mean", 90.0, 1)
    yield shown("P3", preble, "mean", 20.6, 1)
    yield ratio("P3", balanced, preble, round(90.0 / 20.6, 2), 2, note="90.0 over 20.6")
    yield ratio(
        "P3", preble, queued, "from the priority queue", (0.9, 1.1), note="pairing adds less than a tenth"
    )
    base = runs.videos(8.0)
    for traffic in (
        *(base.but(f"Zipf {zipf:g}", zipf=zipf) for zipf in (0.9, 1.3)),
        *(base.but(f"{videos:,} videos", videos=videos) for videos in (500, 2_000)),
    ):
        other = bench.brief(traffic, (BALANCED, PREBLE))
        note = "videos are assumed: the conclusion under others, read as twice as slow and more"
        row = ratio("P3", other[BALANCED.name], other[PREBLE.name], "much of it", (2.0, np.inf), note=note)
        yield variant(row)


# --- P4 -----------------------------------------------------------------------------------------------------


def _load_cost(bench: Bench) -> Iterator[Row]:
    """P4: the terms of basic E2's load cost."""
    for traffic in (runs.documents(), runs.videos(4.0), runs.tools(20.0)):
        terms = load_terms.terms(traffic, bench.workers)
        effort = f"{len(terms['L']):,} runs of {traffic.duration_s:g} s, means over all costs reckoned, "
        effort += "four of a request that explores"
        for name in ("L", "M", "P"):
            found = mean_interval(terms[name])
            yield measured(
                "P4", f"term {name} of the load cost, {traffic.name}", "s", None, found, note=effort
            )
        found = paired_ratio(terms["L"], terms["P"])
        yield claim("P4", f"L / P, {traffic.name}", "40 to 20,000", found, (40.0, 20_000.0), effort)
        if terms["M"].all():
            found = paired_ratio(terms["L"], terms["M"])
            yield claim("P4", f"L / M, {traffic.name}", "40 and more", found, (40.0, np.inf), effort)
        else:
            note = f"{effort}; {np.count_nonzero(terms['M']):,} of the runs have any M at all"
            nothing, wanted = mean_interval(terms["M"]), (-0.001, 0.001)
            yield claim("P4", f"term M, {traffic.name}", "nearly always 0", nothing, wanted, note, "s")
        some = mean_interval(terms["M > 0"])
        note = f"{effort}; read as at most a tenth; what is above 0 is small beside L"
        yield claim(
            "P4", f"share of costs with M above 0, {traffic.name}", "nearly always 0", some, (0.0, 0.1), note
        )


# --- P5 -----------------------------------------------------------------------------------------------------


def _pairing(bench: Bench) -> Iterator[Row]:
    """P5: pairing helps tools and harms documents and videos."""
    readings = [
        Policy(
            f"pairing by {share} over {least:g}",
            "e2",
            {**FULL, "decode_ratio": share, "imbal_r": least},
            GROUPS,
        )
        for share, least in (("outstanding", 0.5), ("outstanding", 0.7), ("hits", 0.5), ("hits", 0.7))
    ]
    for traffic in map(runs.tools, (20.0, 25.0, 30.0)):
        without, usual, *others = bench(traffic, (QUEUED, *readings)).values()
        yield shown("P5", without, "p99", 6.1, 1, RATES)
        yield shown("P5", usual, "p99", 4.6, 1, RATES)
        note = f"4.6 over 6.1; {RATES}"
        yield ratio("P5", usual, without, round(4.6 / 6.1, 2), 2, metric="p99", note=note)
        yield from (_reading(sample, without, "p99", BELOW) for sample in others)
    for traffic in (*map(runs.documents, (1.0, 1.5)), *map(runs.videos, (4.0, 6.0))):
        without, usual, *others = bench(traffic, (QUEUED, *readings)).values()
        for metric in ("mean", "p99"):
            yield ratio("P5", usual, without, "worse", ABOVE, metric=metric)
        yield from (_reading(sample, without, "mean", ABOVE) for sample in others)


def _reading(sample: Sample, without: Sample, metric: str, wanted: tuple[float, float]) -> Row:
    """Whether another reading of pairing has the lecture's direction, too."""
    row = ratio("P5", sample, without, metric=metric)
    low, high = wanted
    same = low <= row.low and row.high <= high
    found = "the same direction" if same else "no direction" if row.low < 1.0 < row.high else "reversed"
    return replace(row, note=f"{row.note}; another reading: {found}")


# --- P6 and P7 ----------------------------------------------------------------------------------------------


def _rebalancing(bench: Bench) -> Iterator[Row]:
    """P6: a hot tool needs rebalancing, whatever its threshold."""
    found = bench(runs.hot_tool(), (QUEUE, HALF, E2, BALANCED), replicas=8)
    queue, half, plain, balanced = found.values()
    for sample in found.values():
        yield shown("P6", sample, "mean")
    for sample in (half, plain):
        yield overloaded("P6", sample, "collapses", True, "as plain affinity does")
    yield overloaded("P6", balanced, "cures it", False)
    yield ratio(
        "P6", plain, half, note="both collapse: only holders of the tool are candidates, so they choose alike"
    )
    part = "a replica's part is 0.125; we take twice that"
    yield judged("P6", plain, "busiest", "collapses", (0.25, 1.0), part)
    yield ratio("P6", balanced, plain)
    yield ratio("P6", balanced, queue, "cures it", BELOW, note="faster than by load only")
    usual, *others = bench(runs.hot_tool(), _thresholds(1.5, 1.1, 1.25, 2.0, 3.0), replicas=8).values()
    for sample in others:
        yield ratio("P6", sample, usual, "insensitive", (0.9, 1.1), note="read as within a tenth")
    for share in (0.3, 0.5):
        found = bench.brief(runs.hot_tool(share=share), (E2, BALANCED), replicas=8)
        note = "tools are assumed: the conclusion under others"
        yield variant(overloaded("P6", found[BALANCED.name], "cures it", False, note))
        yield ratio("P6", found[BALANCED.name], found[E2.name], note=note)


def _thresholds(*th_bal: float) -> list[Policy]:
    return [Policy(f"E2 + rebalance over {th:g}", "e2", {**REBALANCE, "th_bal": th}) for th in th_bal]


def _window(bench: Bench) -> Iterator[Row]:
    """P7: the longer the window the better, but by no order of magnitude."""
    windows = (10.0, 30.0, 60.0, 180.0, 600.0)

    def policies(name: str, params: dict[str, Any], cluster: dict[str, Any]) -> list[Policy]:
        return [Policy(f"{name}, H {h:g} s", "e2", {**params, "horizon_s": h}, cluster) for h in windows]

    note = "the lecture does not say from which H to which, nor with which parts"
    found = bench(runs.documents(1.5), policies("E2 + rebalance", REBALANCE, {}))
    for sample, said in zip(found.values(), (10.09, None, None, None, 6.76), strict=True):
        yield shown("P7", sample, "mean", said, note=note)
    first, *_, last = found.values()
    yield ratio("P7", first, last, round(10.09 / 6.76, 2), 2, note=f"10.09 over 6.76; {note}")
    for name, params, cluster in (("E2", {}, {}), ("Preble", FULL, GROUPS)):
        first, *_, last = bench(runs.documents(1.5), policies(name, params, cluster)).values()
        words = "better as H grows, by no order of magnitude"
        yield variant(ratio("P7", first, last, words, (1.0, 10.0), note=note))


# --- P8 -----------------------------------------------------------------------------------------------------


def _local_order(bench: Bench) -> Iterator[Row]:
    """P8: in which order a replica admits its queue."""
    orders = (
        Policy("Preble with FCFS", "e2", FULL),
        Policy("Preble with priority groups", "e2", FULL, GROUPS),
        Policy("Preble with longest prefix first", "e2", FULL, LONGEST),
    )
    found = bench(runs.videos(6.0), orders)
    fcfs, groups, longest = found.values()
    for sample, said in ((fcfs, 6.09), (groups, 3.96), (longest, 3.91)):
        yield shown("P8", sample, "mean", said)
    yield ratio("P8", groups, fcfs, round(3.96 / 6.09, 2), 2, note="3.96 over 6.09")
    yield ratio(
        "P8",
        groups,
        fcfs,
        "does not lower the P99 of low hits",
        (0.8, 1.25),
        metric="low_p99",
        note=calm(fcfs, groups),
    )
    yield ratio("P8", groups, longest, "almost the same", (0.95, 1.05), note=f"why: {_room(groups)}")
    for traffic in (
        runs.videos(5.0),
        *(runs.videos(6.0).but(f"{n:,} videos", videos=n) for n in (500, 2_000)),
    ):
        other = bench.brief(traffic, orders)
        fcfs, groups, longest = other.values()
        note = "videos are assumed: the conclusion under others"
        yield variant(ratio("P8", groups, fcfs, "lowers the mean", BELOW, note=note))
        yield variant(ratio("P8", groups, longest, "almost the same", (0.95, 1.05), note=note))
    for budget in BUDGETS:
        other = bench.brief(runs.videos(6.0), orders[:2], max_batch_tok=budget)
        for sample, said in zip(other.values(), (6.09, 3.96), strict=True):
            yield _budget("P8", sample, budget, said)


def calm(fcfs: Sample, groups: Sample) -> str:
    """The ratio in those runs whose mean is no worse than the lecture's run under FCFS."""
    calm = fcfs["mean"] < 7.0
    if calm.sum() < 2:
        return "no run was as calm as the lecture's"
    found = paired_ratio(groups["low_p99"][calm], fcfs["low_p99"][calm])
    return (
        "a low hit is below half, 'about as with FCFS' within a quarter; "
        f"in the {found.n:,} runs whose mean under FCFS is below 7 s, as the lecture's, it is "
        f"{found.value:.2f} ({found.low:.2f} to {found.high:.2f})"
    )


def _room(sample: Sample) -> str:
    """How many requests a step has room for, which is how many the order can choose."""
    prompt_tok = float(np.mean([runs.requests(sample.traffic, n).prompt_tok.mean() for n in range(5)]))
    missed_tok = prompt_tok * (1.0 - float(sample["hit"].mean()))
    return f"a step computes 2,048 tokens, a request misses {missed_tok:,.0f} on average: hardly two go in"
