"""The same jobs on the offline replay of `ai-dynamo-runtime` (extra `peers`), as far as it can run them.

It has the same engine (vLLM's scheduler over blocks), the same prefill time (its only polynomial, from which
ours is taken), and round robin; its `kv_router` follows prefixes and load. A decode step takes it
5.74 + 54.01 u - 25.74 u^2 ms at share u of the KV blocks in use, which cannot be changed, not 8 + 0.02 b.
"""

from __future__ import annotations

import gzip
import importlib
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.bench import jobs

MISSING = "ai-dynamo-runtime is not installed, so there is no peer to compare with: pip install '.[peers]'"
ROUTER = {"round_robin": "round_robin", "cache_aware_guard": "kv_router"}


def peer() -> ModuleType | None:
    """The peer's core, or None where it is not installed."""
    os.environ.setdefault("DYN_LOG", "off")  # it would log every routed request
    try:
        return importlib.import_module("dynamo._core")
    except ImportError:
        return None


def replay(core: ModuleType, trace: Path, hash_tok: int, block_tok: int, router: str) -> Callable[[], Any]:
    """A job: replay a trace on the cluster of the main jobs, keeping every request's record."""
    engine = {
        "backend": "vllm",
        "block_size": block_tok,
        "num_gpu_blocks": jobs.KV_TOK // block_tok,
        "max_num_batched_tokens": jobs.BATCH_TOK,
        "max_num_seqs": jobs.SEQS,
        "enable_prefix_caching": True,
        "enable_chunked_prefill": True,
        "timing_model": {"type": "polynomial"},
    }
    return lambda: core.run_mocker_trace_replay(
        [str(trace)],
        extra_engine_args={"engine": engine},
        num_workers=8,
        router_mode=ROUTER[router],
        trace_block_size=hash_tok,
        capture_per_request=True,
        capture_planner_details=False,
    )


def simulating(result: Any, wall_s: float) -> float:
    """The share of a replay's time that it says it simulated; the rest it read."""
    return result.summary["wall_time_ms"] / 1e3 / wall_s


def unpacked(trace: Path, folder: Path) -> Path:
    """A plain copy of a gzipped trace, for the peer reads no other."""
    copy = folder / trace.stem
    copy.write_bytes(gzip.decompress(trace.read_bytes()))
    return copy
