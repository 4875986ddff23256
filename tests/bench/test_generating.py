"""How many requests a second each generator makes, its arrays checked; target: a million for simple ones."""

from __future__ import annotations

import pytest

from fastsim.cluster.prefix_statistics import prefix_statistics
from fastsim.workloads import GENERATORS, make

REQUESTS = 200_000


@pytest.mark.parametrize("name", GENERATORS)
def test_generating(benchmark, name):
    """Parameters to workload. Prompts of episodes and sessions are lists of many symbols and take longer."""
    benchmark.group = f"make {REQUESTS:,} requests"
    make(name, requests=100)
    benchmark(lambda: make(name, requests=REQUESTS, rate_rps=100.0))


@pytest.mark.parametrize("name", ["tool_use", "agentic"])
def test_measuring(benchmark, name):
    """Workload to Table 1's columns."""
    benchmark.group = f"prefix statistics of {REQUESTS:,} requests"
    prefix_statistics(make(name, requests=100))
    workload = make(name, requests=REQUESTS, rate_rps=100.0)
    benchmark(lambda: prefix_statistics(workload))
