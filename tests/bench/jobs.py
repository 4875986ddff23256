"""The jobs that benchmarks run: recorded traces on eight replicas, and ref made longer, wider or slower."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from fastsim.cluster.config import Cluster
from fastsim.cluster.step_time import StepTime
from fastsim.workloads import Workload, load
from tests.conftest import shared_path

REF = "ref_fixed_block64"
MOONCAKE = "mooncake_conversation"
HASH_TOK = {REF: 64, MOONCAKE: 512}  # tokens a hash id of the trace stands for
ROUTERS = ("round_robin", "cache_aware_guard")
KV_TOK, BATCH_TOK, SEQS = 400_000, 8192, 1024
# 16.50142 + 0.01518344 n + 4.209989e-7 n^2 ms for n prefill tokens, plus 8 + 0.02 b ms for b that decode.
POLYNOMIAL = (16.50142e-3, 1.518344e-5, 4.209989e-10, 8e-3, 2e-5)


def trace_path(name: str) -> Path:
    """Where a trace is; skips the test if it is absent."""
    return shared_path(f"traces/{name}.jsonl.gz")


def trace(name: str) -> Workload:
    """A trace as it is."""
    return load(trace_path(name), time_unit="ms")


def cluster(replicas: int = 8, block_tok: int = 16) -> Cluster:
    """The cluster of the main jobs."""
    return Cluster(
        replicas,
        kv_tok=KV_TOK,
        max_batch_tok=BATCH_TOK,
        max_seqs=SEQS,
        block_tok=block_tok,
        step_time=StepTime.polynomial(*POLYNOMIAL),
    )


def without_private_symbols(workload: Workload) -> Workload:
    """The same requests, said shorter: what only one of them has is private to it without a symbol, too."""
    count = np.bincount(workload.symbols, minlength=len(workload.symbol_tok))
    kept = count[workload.symbols] > 1
    rows = np.repeat(np.arange(len(workload)), np.diff(workload.symbol_ptr))
    if (np.diff(kept.astype(int))[np.diff(rows) == 0] > 0).any():
        raise ValueError(f"{workload.name}: something shared comes after something private")
    ptr = np.concatenate(([0], np.cumsum(np.bincount(rows[kept], minlength=len(workload)))))
    return replace(workload, symbol_ptr=ptr, symbols=workload.symbols[kept], shared_symbols=np.diff(ptr))


def in_turn(workload: Workload, times: int) -> Workload:
    """Play a workload several times, one after the other.

    Prefixes are the same each time, so the caches see more of the same traffic. Private tokens are new, which
    takes a workload without private symbols.
    """
    return _tiled(workload, times, np.arange(times) * _period_s(workload), own_prefixes=False)


def at_once(workload: Workload, times: int, *, own_prefixes: bool = False) -> Workload:
    """Play a workload several times in the span of one, each shifted by a part of it: as many times the rate.

    With the same prefixes every replica of as many times more sees the traffic it saw before, if requests
    are dealt out evenly. With prefixes of their own there are as many times more of them, each as popular
    as before: what a router that follows prefixes would call the same load.
    """
    shift = np.arange(times) * _period_s(workload) / times
    return _tiled(workload, times, shift, own_prefixes=own_prefixes, wrap=True)


def slowed(workload: Workload, output: int, gap: int) -> Workload:
    """Make outputs and gaps between arrivals so many times longer."""
    return replace(workload, output_tok=workload.output_tok * output, arrival_s=workload.arrival_s * gap)


def _period_s(workload: Workload) -> float:
    """The span, and one mean gap."""
    n = len(workload)
    return float(workload.arrival_s[-1] - workload.arrival_s[0]) * n / (n - 1)


def _tiled(
    workload: Workload, times: int, shift_s: np.ndarray, *, own_prefixes: bool, wrap: bool = False
) -> Workload:
    arrival = (workload.arrival_s + shift_s[:, None]).ravel()
    if wrap:
        arrival %= _period_s(workload)
    symbols = len(workload.symbol_tok)
    step = symbols if own_prefixes else 0
    tiled = replace(
        workload,
        arrival_s=np.sort(arrival),
        prompt_tok=np.tile(workload.prompt_tok, times),
        output_tok=np.tile(workload.output_tok, times),
        symbol_ptr=np.concatenate(([0], np.cumsum(np.tile(np.diff(workload.symbol_ptr), times)))),
        symbols=(workload.symbols + np.arange(times)[:, None] * step).ravel(),
        symbol_tok=np.tile(workload.symbol_tok, times if own_prefixes else 1),
        shared_symbols=np.tile(workload.shared_symbols, times),
        answer=np.full(times * len(workload), -1),
        session=np.full(times * len(workload), -1),
        priority=np.tile(workload.priority, times),
    )
    return tiled.arranged(np.argsort(arrival, kind="stable"), tiled.arrival_s)
