"""Cases of the twins on the real engine: same requests, cluster and random stream, bit for bit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fastsim.cluster.config import Cluster
from fastsim.cluster.simulate import Result, simulate
from fastsim.cluster.step_time import StepTime
from tests.twins.cluster import Outcome, run_cluster
from tests.twins.convert import to_step_time, to_workload

COLUMNS = ("replica", "first_token_s", "done_s", "hit_tok", "preemptions")
REJECTED = -1  # replica of a request that was refused; its instants are NaN
TOTALS = {  # of the engine -> of the twin
    "steps": "steps",
    "computed_tok": "scheduled_tok",
    "preemptions": "preemptions",
    "evicted_blocks": "evicted",
}


def cluster_of(case: Mapping[str, Any], **changes: Any) -> Cluster:
    """The cluster of a case or of a golden file; the null block they count holds nothing."""
    engine = case["engine"]
    settings = {
        "replicas": case.get("replicas", 1),
        "engine": engine.get("kind", "vllm"),
        "step_time": _step_time(case),
        "block_tok": engine["block_size"],
        "kv_tok": (engine["num_blocks"] - 1) * engine["block_size"],
        "max_batch_tok": engine["max_num_batched_tokens"],
        "max_seqs": engine["max_num_seqs"],
        "watermark": engine.get("watermark", 0.0),
        "order": engine.get("order", "fcfs"),
        "order_params": engine.get("order_params"),
        "preempt_ties": engine.get("preempt_ties", "running_list"),
        **{name: case[name] for name in ("restarts", "joins_s", "speeds") if name in case},
    }
    return Cluster(**{**settings, **changes})


def _step_time(case: Mapping[str, Any]) -> StepTime:
    step_ms = case["step_ms"]
    seconds = {name: value / 1e3 for name, value in step_ms.items() if isinstance(value, float | int)}
    if step_ms["kind"] == "linear":
        names = ("base", "per_prefill_token", "per_decode_request")
        return StepTime.linear(*(seconds[name] for name in names))
    if step_ms["kind"] == "fixed":
        return StepTime.fixed(seconds["prefill"], seconds["decode"])
    return to_step_time(dict(case))


def serve(case: Mapping[str, Any], **changes: Any) -> Result:
    """Serve a case with the real engine; `changes` are settings of the cluster."""
    return simulate(
        to_workload(dict(case)),
        cluster_of(case, **changes),
        case.get("router", "round_robin"),
        case.get("router_params"),
        **{name: case[name] for name in ("view", "routers", "caches", "counted_from") if name in case},
    )


def serve_slowly(case: Mapping[str, Any]) -> Outcome:
    """Serve a case with the twin, its routers on the random streams that the real ones draw from."""
    return run_cluster(dict(case))


def differences(result: Result, outcome: Outcome) -> list[str]:
    """What the real engine did otherwise than the twin: for each column the first request, and totals."""
    wrong = []
    for name, ours in zip(COLUMNS, _columns(result), strict=True):
        theirs = [_seen(request, name) for request in outcome.requests]
        if ours != theirs:
            i = next(i for i, pair in enumerate(zip(ours, theirs, strict=True)) if pair[0] != pair[1])
            wrong.append(f"{name} of request {i}: {ours[i]}, twin {theirs[i]}")
    totals = outcome.totals()
    for name, theirs in TOTALS.items():
        wrong += _unequal(name, result.replicas[name].tolist(), [row[theirs] for row in totals])
    wrong += _unequal("busy_s", result.replicas["busy_s"].tolist(), [_s(row["busy_fs"]) for row in totals])
    finished = [sum(request.replica == k for request in outcome.requests) for k in range(len(totals))]
    wrong += _unequal("requests", result.replicas["requests"].tolist(), finished)
    distinct = outcome.distinct_tok()
    copies = sum(row["cached_copies_tok"] for row in totals) / distinct if distinct else 1.0
    return wrong + _unequal("copies", result.copies, copies)


def _columns(result: Result) -> list[list]:
    return [np.nan_to_num(result.columns[name], nan=REJECTED).tolist() for name in COLUMNS]


def _unequal(name: str, ours: Any, theirs: Any) -> list[str]:
    return [] if ours == theirs else [f"{name}: {ours}, twin {theirs}"]


def _seen(request: Any, name: str) -> float | int:
    """A column of `Result.requests` as the twin has it; instants are whole picoseconds."""
    if request.replica is None:
        return 0 if name in ("hit_tok", "preemptions") else REJECTED
    if name.endswith("_s"):
        return _s(getattr(request, name.replace("_s", "_fs")))
    return getattr(request, name)


def _s(fs: int) -> float:
    return fs // 1000 * 1e-12
