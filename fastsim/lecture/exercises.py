"""The numbers of the lecture's exercises 1 to 9 beside ours."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fastsim.hardware import kv_capacity_tok
from fastsim.lecture import cluster_runs as runs
from fastsim.lecture import code_01, code_04, one_request
from fastsim.lecture.cluster_runs import Bench, Policy, difference, judged, ratio, shown
from fastsim.lecture.code_02 import GPU, HALF, MODEL, TURNS, prefill_s, step_time
from fastsim.lecture.code_03 import FULL, GROUPS, calm
from fastsim.lecture.verdicts import Row, claim, exact, formula
from fastsim.stats import Interval, mean_interval

__all__ = ["exercises"]

DOCUMENTS, ZIPF, DOCUMENT_TOK = 300, 1.1, 21_000
RESTART = {"replica": 0, "at_s": 300.0}


def exercises(workers: int = 1, rel_half_width: float = runs.HALF_WIDTH) -> list[Row]:
    """Compute the numbers of the exercises; under two minutes on two cores.

    Parameters
    ----------
    workers : int
        Threads; the result does not depend on it.
    rel_half_width : float
        To which every mean latency of a cluster is known, with 95 % confidence.
    """
    bench = Bench(workers, rel_half_width)
    return [
        *code_01.exercises(workers),
        *one_request.routed("E3"),
        *_cache_of_the_cluster(bench),
        *one_request.quotas_row("E5"),
        *_starving(bench),
        *code_04.exercises(workers),
        *_approximate_trees(bench),
        *_apart(),
    ]


def _cache_of_the_cluster(bench: Bench) -> Iterator[Row]:
    """Exercise 4."""
    capacity_tok = kv_capacity_tok(GPU, MODEL)
    yield exact("E4", "KV capacity of a replica", "tokens", 219_089, capacity_tok, 0)
    whole = capacity_tok // DOCUMENT_TOK
    yield exact("E4", "documents in a replica", "", 10, whole, 0, "whole documents of the mean length")
    yield exact(
        "E4",
        "documents in four, perfectly parted",
        "",
        40,
        4 * whole,
        0,
        "whole documents of the mean length",
    )
    share = np.arange(1, DOCUMENTS + 1) ** -ZIPF
    share *= 100.0 / share.sum()
    for rank, said in enumerate((20.3, 9.5, 6.1)):
        yield exact(
            "E4",
            f"traffic of document {rank + 1}",
            "%",
            said,
            float(share[rank]),
            1,
            "Zipf's law, cut off at 300",
        )
    yield exact(
        "E4", "traffic of the first three", "%", 36, float(share[:3].sum()), 0, "Zipf's law, cut off at 300"
    )
    found = bench(runs.documents(), (TURNS, HALF))
    turns, half = found[TURNS.name], found[HALF.name]
    yield shown("E4", turns, "copies", 1.34, note="at the end of a run")
    yield shown("E4", turns, "hit", 0.32)
    yield shown("E4", half, "hit", 0.58)
    copies = mean_interval(turns["copies"])
    full = 4.0 * capacity_tok / DOCUMENT_TOK
    several = Interval(full / copies.value, full / copies.high, full / copies.low, copies.n)
    note = (
        f"{turns.effort}; four full caches hold {full:.0f}, each {copies.value:.2f} times: the lecture's own "
        "copies contradict its 'some ten', which we take as 10 to 20"
    )
    yield claim(
        "E4", "different documents in four caches, round robin", "some ten", several, (10.0, 20.0), note
    )


def _starving(bench: Bench) -> Iterator[Row]:
    """Exercise 5 (b): whether those with low hits starve."""
    found = bench(
        runs.videos(6.0), (Policy("Preble with FCFS", "e2", FULL), Policy("Preble", "e2", FULL, GROUPS))
    )
    fcfs, groups = found.values()
    note = f"no more than a quarter above; {calm(fcfs, groups)}"
    yield ratio("E5", groups, fcfs, "no starvation", (0.0, 1.25), metric="low_p99", note=note)


def _approximate_trees(bench: Bench) -> Iterator[Row]:
    """Exercise 8: what a router loses that goes by what it sent, not by what replicas report."""
    told = Policy("told by replicas", HALF.router)
    sent = Policy("tree of what was sent", HALF.router, known={"caches": "approximate"})
    for traffic in (runs.documents(), runs.videos(4.0), runs.tools(20.0)):
        found = bench(traffic, (told, sent))
        yield difference(
            "E8",
            found[sent.name],
            found[told.name],
            "errs",
            (-1.0, 0.0),
            note="(a) both know what was sent, one of them what was evicted",
        )
        yield ratio("E8", found[sent.name], found[told.name], "computes again", (1.0, np.inf), note="(b)")
    at_once, never = (
        Policy(name, HALF.router, cluster={"restarts": [{**RESTART, "told_after_s": after_s}]})
        for name, after_s in (("told of a restart", 0.0), ("told 300 s after it", 300.0))
    )
    found = bench(runs.documents(), (at_once, never))
    note = "(a) replica 0 restarts at 300 s, its cache is gone"
    yield ratio("E8", found[never.name], found[at_once.name], "computes again", (1.0, np.inf), note=note)
    late = Policy("told 10 s late", HALF.router, known={"view": "delayed(10.0)"})
    found = bench(runs.documents(), (told, late))
    note = "(c) notices and loads are late, what it sent itself is not"
    yield ratio("E8", found[late.name], found[told.name], "still delayed", (1.0, np.inf), note=note)
    yield judged("E8", found[late.name], "busiest", "still spread", (0.25, 0.9), note)


def _apart() -> Iterator[Row]:
    """Exercise 9: what is left of a request that hits; prefill and decode apart are not simulated."""
    hit_s, cold_s = prefill_s(one_request.QUESTION), prefill_s(one_request.DOCUMENT + one_request.QUESTION)
    decode_s = 16 * step_time().seconds(0, 0, 1, one_request.DOCUMENT + one_request.QUESTION)
    note = "16 tokens of answer, alone on its replica; by the lecture's formula"
    yield formula(
        "E9", "share of prefill, request that misses", "", None, cold_s / (cold_s + decode_s), note=note
    )
    share = hit_s / (hit_s + decode_s)
    yield formula(
        "E9",
        "share of prefill, request that hits",
        "",
        "almost only decode left",
        share,
        share < 0.2,
        f"{note}; read as less than a fifth: a question of 1,987 tokens is no small prefill",
    )
    question_s, answer_s = prefill_s(275), 43 * step_time().seconds(0, 0, 1, 1_835)
    share = question_s / (question_s + answer_s)
    note = "a tool's question of 275 tokens, 43 of answer; read as less than a fifth"
    yield formula(
        "E9", "share of prefill, tool call that hits", "", "almost only decode left", share, share < 0.2, note
    )
