"""Simulated queues against closed forms up to utilisation 0.99, and how often their intervals hold the truth.

Run as ``python -m tests.study.queueing [macro-replications]``; about an hour on two cores, most of it for
utilisation 0.99, where a queue takes some ten billion requests. Exits with status 1 when an interval of 1 %
misses a closed form, or a coverage lies outside the band.

The first part runs until the mean and the P99 are known to 1 % at level 0.9999, so that its eighty
comparisons hold together for 99 seeds in 100. The second goes the whole way of `fastsim.queueing.simulate`
with all its defaults but twenty replications: pilots, warm-up, length of runs, histograms, intervals.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fastsim.queueing import simulate
from fastsim.stats import Interval

BAND = (0.935, 0.965)
UTILISATIONS = (0.5, 0.8, 0.9, 0.95, 0.99)
WIDTH, LEVEL = 0.01, 0.9999
RUN_LENGTH = 60.0  # requests of a replication times (1 - utilisation)^2, in thousands
WORKERS = os.cpu_count() or 1

QUEUES: dict[str, dict[str, Any]] = {
    "M/M/1": {},
    "M/M/16, one queue": {"servers": 16, "dispatcher": "central_queue"},
    "E16/M/1, round robin": {"servers": 16, "dispatcher": "round_robin"},
    "M/D/1": {"size": "deterministic"},
    "M/H2/1": {"size": "hyperexponential(cv=2)"},
    "M/G/1-PS, lognormal": {"size": "lognormal(cv=1.5)", "discipline": "ps"},
}
MEAN_ONLY = ("M/H2/1", "M/G/1-PS, lognormal")  # no formula for their quantiles here
UP_TO = {"M/G/1-PS, lognormal": 0.95}  # ten times the cost of a request

COVERED: dict[str, dict[str, Any]] = {
    "M/M/1": {},
    "M/M/16, one queue": {"servers": 16, "dispatcher": "lwl"},
    "M/M/16, random": {"servers": 16},
    "M/D/1": {"size": "deterministic"},
    "M/H2/1": {"size": "hyperexponential(cv=2)"},
}


def closed_forms() -> Iterator[str]:
    """Print a line a queue and utilisation; yield those that miss."""
    print(f"intervals of {WIDTH:.0%} at level {LEVEL}")
    print("queue, utilisation".ljust(30) + "figure".rjust(8) + "theory".rjust(12) + "ours".rjust(12), end="")
    print("+-".rjust(10) + "runs".rjust(7) + "requests".rjust(15) + "s".rjust(7))
    for name, question in QUEUES.items():
        for utilisation in UTILISATIONS:
            if utilisation > UP_TO.get(name, 1.0):
                continue
            began = time.perf_counter()
            found = simulate(
                **question,
                utilisation=utilisation,
                requests=round(RUN_LENGTH * 1000.0 / (1.0 - utilisation) ** 2),
                rel_half_width=WIDTH,
                max_replications=5000,
                quantiles=() if name in MEAN_ONLY else (0.99,),
                level=LEVEL,
                seed=1,
                workers=WORKERS,
            )
            took = time.perf_counter() - began
            assert found.theory is not None
            figures: list[tuple[str, float | None, Interval]] = []
            figures.append(("mean", found.theory.response_mean, found.response.mean))
            for p, interval in found.response.quantiles.items():
                figures.append((f"P{100 * p:g}", (found.theory.response or {})[p], interval))
            for what, truth, ours in figures:
                assert truth is not None
                line = f"{name} {utilisation:g}".ljust(30) + what.rjust(8)
                line += f"{truth:12.5g}{ours.value:12.5g}{ours.half_width:10.3g}"
                line += f"{found.replications:7d}{found.requests:15,d}{took:7.0f}"
                missed = not ours.contains(truth) or not found.reached
                print(line + (" missed" if missed else ""), flush=True)
                if missed:
                    yield f"{name} {utilisation:g} {what}"


def coverages(macro: int) -> Iterator[str]:
    """Print a line a queue and figure; yield those outside the band."""
    error = (0.95 * 0.05 / macro) ** 0.5
    print(f"\n{macro} macro-replications of twenty runs; standard error of a coverage {error:.4f}")
    print("queue, utilisation".ljust(30) + "figure".rjust(8) + "coverage".rjust(10) + "s".rjust(7))
    for name, question in COVERED.items():
        for utilisation in (0.5, 0.8):
            began = time.perf_counter()

            def one(seed: int, question=question, utilisation=utilisation) -> tuple[bool, bool | None]:
                found = simulate(
                    **question, utilisation=utilisation, replications=20, quantiles=(0.99,), seed=seed
                )
                assert found.theory is not None
                assert found.theory.response_mean is not None
                p99 = (found.theory.response or {}).get(0.99)
                return (
                    found.response.mean.contains(found.theory.response_mean),
                    None if p99 is None else found.response.quantiles[0.99].contains(p99),
                )

            with ThreadPoolExecutor(WORKERS) as pool:
                held = list(pool.map(one, range(1000, 1000 + macro)))
            for what, hits in zip(("mean", "P99"), zip(*held, strict=True), strict=True):
                if None in hits:
                    continue
                covered = sum(bool(hit) for hit in hits) / macro
                outside = not BAND[0] <= covered <= BAND[1]
                line = f"{name} {utilisation:g}".ljust(30) + what.rjust(8) + f"{covered:10.4f}"
                line += f"{time.perf_counter() - began:7.0f}"
                print(line + (" outside" if outside else ""), flush=True)
                if outside:
                    yield f"{name} {utilisation:g} {what}"


def main(macro: int = 2_000) -> int:
    """Print both tables; 1 when something misses."""
    missed = [*closed_forms(), *coverages(macro)]
    print("missed: " + ", ".join(missed) if missed else "all hold")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(*(int(argument) for argument in sys.argv[1:])))
