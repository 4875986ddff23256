"""What the scenarios of public reports are made of: requests by hand, a plain cluster, plain figures."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastsim import Cluster
from fastsim.cluster.simulate import Result
from fastsim.cluster.step_time import StepTime
from fastsim.workloads import Workload

# 10 ms a step, 0.1 ms a token to prefill, 1 ms a request that decodes.
STEP = StepTime.linear(0.01, 0.0001, 0.001)


@dataclass(frozen=True)
class Ask:
    """A request: its prompt is stretches (name, tokens) and then tokens of its own."""

    at_s: float
    shared: tuple[tuple[str, int], ...] = ()
    own_tok: int = 0
    output_tok: int = 1
    session: int = -1


def workload(asks: Iterable[Ask]) -> Workload:
    """Requests in the order of arrival; a name always stands for the same tokens."""
    rows = sorted(asks, key=lambda ask: ask.at_s)
    stretches = sorted({stretch for row in rows for stretch in row.shared})
    symbol = {stretch: k for k, stretch in enumerate(stretches)}
    return Workload(
        name="report",
        arrival_s=np.array([row.at_s for row in rows]),
        prompt_tok=np.array([row.own_tok + sum(tokens for _, tokens in row.shared) for row in rows]),
        output_tok=np.array([row.output_tok for row in rows]),
        symbol_ptr=np.cumsum([0] + [len(row.shared) for row in rows]),
        symbols=np.array([symbol[stretch] for row in rows for stretch in row.shared], dtype=np.int64),
        symbol_tok=np.array([tokens for _, tokens in stretches] or [1]),
        session=np.array([row.session for row in rows]),
    )


def arrivals(rng: np.random.Generator, rate_rps: float, requests: int, start_s: float = 0.0) -> list[float]:
    """A Poisson process."""
    return (start_s + np.cumsum(rng.exponential(1 / rate_rps, requests))).tolist()


def cluster(replicas: int, **settings: Any) -> Cluster:
    """A cluster of plain replicas."""
    usual = {"kv_tok": 400_000, "max_batch_tok": 2048, "max_seqs": 256, "step_time": STEP}
    return Cluster(replicas, **{**usual, **settings})


def shares(result: Result, replicas: int, since_s: float = 0.0) -> np.ndarray:
    """Share of the requests from an instant on that each replica got."""
    late = result.columns["arrival_s"] >= since_s
    counts = np.bincount(result.columns["replica"][late], minlength=replicas)
    return counts / counts.sum()


def hit_rate(result: Result, which: np.ndarray | slice = slice(None)) -> float:
    """Share of the prompts' tokens that was cached."""
    return float(result.columns["hit_tok"][which].sum() / result.columns["prompt_tok"][which].sum())


def ttft_s(result: Result, which: np.ndarray | slice = slice(None)) -> np.ndarray:
    """Time to first token of each request."""
    return (result.columns["first_token_s"] - result.columns["arrival_s"])[which]


def latency_s(result: Result, which: np.ndarray | slice = slice(None)) -> np.ndarray:
    """Time from arrival to the last token of each request."""
    return (result.columns["done_s"] - result.columns["arrival_s"])[which]


def most_in_flight(result: Result) -> int:
    """Most requests at once on one replica."""
    rows = result.columns
    most = 0
    for r in range(len(result.replicas["busy_s"])):
        here = rows["replica"] == r
        begun = np.sort(rows["arrival_s"][here])
        done = np.sort(rows["done_s"][here])
        in_flight = np.arange(1, len(begun) + 1) - np.searchsorted(done, begun, side="right")
        most = max(most, int(in_flight.max(initial=0)))
    return most
