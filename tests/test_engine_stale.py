"""An edit of a file of kernels changes what a new process simulates, although the old ones are cached."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fastsim._jit import JIT

PACKAGE = Path(__file__).parents[1] / "fastsim"

SIMULATE = """
import json
from fastsim import Cluster, simulate
from fastsim.workloads import make

workload = make("long_documents", requests=5, documents=1, rate_rps=0.01)
columns = simulate(workload, Cluster(2), "prefix_affinity").columns
ttft_s = columns["first_token_s"] - columns["arrival_s"]
print(json.dumps([int(columns["hit_tok"].sum()), float(ttft_s[0])]))
"""

# Written at the end of a file of kernels, each takes the place of what the file defined before.
NO_HITS = """

@kernel
def find_hits(s, r, i, limit):
    return 0, 0, 0
"""
SLOWER = """

_step_fs = step_fs


@kernel
def step_fs(coef, knot_ptr, knots, first, last, prefill_tok, pairs, decode_reqs, context_tok):
    return 2 * _step_fs(coef, knot_ptr, knots, first, last, prefill_tok, pairs, decode_reqs, context_tok)
"""


@pytest.mark.skipif(not JIT, reason="about compiled code")
def test_an_edited_engine_is_never_answered_from_the_cache(tmp_path):
    package = tmp_path / "site" / "fastsim"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    env = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA_", "FASTSIM_"))}
    env |= {"PYTHONPATH": str(package.parent), "FASTSIM_CACHE_DIR": str(tmp_path / "cache")}

    def simulated() -> tuple[int, float]:
        command = [sys.executable, "-B", "-W", "error", "-c", SIMULATE]
        done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        hits, ttft_s = json.loads(done.stdout)
        return hits, ttft_s

    kv, step_time = package / "cluster" / "_kv.py", package / "cluster" / "_step_time.py"
    originals = {path: path.read_text() for path in (kv, step_time)}
    hits, ttft_s = simulated()
    assert hits > 0
    kv.write_text(originals[kv] + NO_HITS)
    step_time.write_text(originals[step_time] + SLOWER)
    assert simulated() == (0, pytest.approx(2 * ttft_s, rel=1e-6))
    for path, text in originals.items():
        path.write_text(text)
    assert simulated() == (hits, ttft_s)
