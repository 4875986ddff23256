"""One request at a time: where E2 sends it and what it takes there (P9), and who is next in a queue (P10)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fastsim.cluster._order import group_of
from fastsim.cluster.config import Cluster
from fastsim.cluster.orders import quotas
from fastsim.cluster.simulate import simulate
from fastsim.lecture.code_02 import prefill_s
from fastsim.lecture.verdicts import Row, exact, formula
from fastsim.workloads import Workload
from fastsim.workloads.summary import WorkloadSummary

__all__ = ["quotas_row", "routed"]

SYSTEM, DOCUMENT, QUESTION = 13, 21_000, 1_987
REPLICAS = 4
THERE = 2  # the replica that holds the document
GAP_S = 30.0  # everything is served by then
ENGINE = "the engine attends to what is cached, which the lecture's formula leaves out"


def _asked() -> Workload:
    """A document for each replica, then a question about that of replica 2, and one about a new document."""
    document = np.array([0, 1, 2, 3, THERE, 4])
    n = len(document)
    parts = np.stack((np.zeros(n, np.int64), 1 + document, 6 + np.arange(n)), axis=1)
    return Workload(
        name="exercise 3",
        summary=WorkloadSummary(source="exercise 3", notes=()),
        arrival_s=GAP_S * np.arange(n),
        prompt_tok=np.full(n, SYSTEM + DOCUMENT + QUESTION),
        output_tok=np.ones(n, np.int64),
        symbol_ptr=3 * np.arange(n + 1),
        symbols=parts.ravel(),
        symbol_tok=np.concatenate(([SYSTEM], np.full(5, DOCUMENT), np.full(n, QUESTION))),
        shared_symbols=np.full(n, 2),
    )


def routed(id: str) -> Iterator[Row]:
    """P9 and exercise 3: a question about a document that only replica 2 holds."""
    columns = simulate(_asked(), Cluster(REPLICAS, engine="lecture"), "e2").columns
    *before, here, elsewhere = range(len(columns["request"]))
    note = f"E2 in the simulator, after a document each on replicas {columns['replica'][before].tolist()}"
    yield exact(id, "cached", "tokens", 21_013, int(columns["hit_tok"][here]), 0, note)
    missed_tok = int(columns["prompt_tok"][here] - columns["hit_tok"][here])
    yield exact(id, "missed", "tokens", 1_987, missed_tok, 0, note)
    yield exact(
        id, "replica that E2 chooses", "", THERE, int(columns["replica"][here]), 0, f"{note}: it exploits"
    )
    hit_s, cold_s = prefill_s(QUESTION), prefill_s(DOCUMENT + QUESTION)
    yield exact(id, "prefill there", "s", 0.27, hit_s, 2, "by the lecture's formula")
    yield formula(
        id, "prefill elsewhere", "s", "more than 4", cold_s, cold_s > 4.0, "by the lecture's formula"
    )
    times = cold_s / hit_s
    yield formula(
        id, "elsewhere / there", "", "about 15", times, 14.0 < times < 16.0, "by the lecture's formula"
    )
    first_s = columns["first_token_s"] - columns["arrival_s"]
    yield formula(id, "first token there", "s", None, float(first_s[here]), note=f"in the engine: {ENGINE}")
    yield formula(
        id,
        "first token elsewhere",
        "s",
        None,
        float(first_s[elsewhere]),
        note="in the engine, in chunks of 2,048",
    )
    times = float(first_s[elsewhere] / first_s[here])
    yield formula(id, "elsewhere / there, in the engine", "", None, times, note=ENGINE)


def quotas_row(id: str) -> Iterator[Row]:
    """P10 and exercise 5: the group of a request, and how many of each group are next."""
    yield exact(
        id,
        "group of a request with 63 of 100 cached, 10 groups",
        "",
        6,
        int(group_of(63, 100, 10)),
        0,
        "by the local order",
    )
    shares = quotas(55, 10)
    for group, share in zip(range(10, 0, -1), shares, strict=True):
        yield exact(id, f"of the next 55, from group {group}", "", group, share, 0, "by the local order")
