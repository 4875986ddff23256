"""Benchmarks run under `make bench` only, and report ratios: seconds depend on the machine, ratios hardly."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("benchmark_only"):
        return
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.skip(reason="a benchmark: make bench"))


def best_times_s(jobs: dict[str, Callable[[], object]], rounds: int = 7) -> dict[str, float]:
    """The shortest time of each job, taking turns so that all meet the same load; the first turn warms up."""
    best = dict.fromkeys(jobs, float("inf"))
    for turn in range(rounds + 1):
        for name, job in jobs.items():
            start = time.perf_counter()
            job()
            if turn:
                best[name] = min(best[name], time.perf_counter() - start)
    return best


@pytest.fixture(scope="session", name="best_times_s")
def _best_times_s() -> Callable[..., dict[str, float]]:
    return best_times_s


@pytest.fixture
def once(benchmark) -> Callable[[Callable[[], object]], object]:
    """Run a benchmark that takes its own times: pytest-benchmark selects it, and times nothing."""
    benchmark.disabled = True
    return benchmark.pedantic
