"""How often the reported 95 % intervals hold the truth, on queues whose answers are known.

Run as ``python -m tests.study.coverage [macro-replications]``. Every macro-replication goes the whole
production path, `fastsim.stats.pipeline.summarise`: runs from an empty start, one MSER-5 truncation, mean
and quantiles of each run, t interval over the runs. Exits with status 1 when a coverage lies outside the
band. 2,000 macro-replications take forty minutes of one core.
"""

from __future__ import annotations

import sys
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from fastsim.stats import Interval
from fastsim.stats.pipeline import FOR_THE_MEAN, run_length, summarise
from fastsim.stats.single_run import batch_means, sectioning
from fastsim.stats.stopping import StoppingRule, run_until
from tests.study.queues import Floats, question, run, truth_s

BAND = (0.935, 0.965)
REPLICATIONS = 20
WARMUP_SHARE = 0.1  # runs are this much longer than what `run_length` asks to keep


@dataclass(frozen=True)
class Case:
    """One queue, one figure, one way to an interval."""

    name: str
    truth: float
    interval: Callable[[np.random.Generator], Interval]
    requests: int
    held_to_band: bool = True


def responses_s(rng: np.random.Generator, n: int, utilisation: float, servers: int, sizes: str) -> Floats:
    arrival_s, done_s = run(rng, n, utilisation, servers=servers, sizes=sizes)
    return done_s - arrival_s


def pipeline_case(
    p: float | None,
    utilisation: float,
    servers: int = 1,
    sizes: str = "exponential",
    requests: int | None = None,
) -> Case:
    """The mean (p None) or a quantile through `summarise`, from runs as long as `run_length` asks for."""
    length = run_length(p or FOR_THE_MEAN, utilisation, question(utilisation, servers, sizes).variability)
    n = requests or int(length * (1 + WARMUP_SHARE))

    def interval(rng: np.random.Generator) -> Interval:
        runs = [responses_s(rng, n, utilisation, servers, sizes) for _ in range(REPLICATIONS)]
        summary = summarise(runs, ps=(p or FOR_THE_MEAN,))
        return summary.mean if p is None else summary.quantiles[p]

    what = "mean" if p is None else f"P{100 * p:g}"
    return Case(
        f"{_queue(servers, sizes)} {utilisation:g} {what}",
        truth_s(utilisation, servers, sizes, p),
        interval,
        n,
    )


def single_run_case(p: float | None, utilisation: float, sections: int = 16) -> Case:
    """One long run of as many requests as the replications have together, cut into sections."""
    n = REPLICATIONS * run_length(p or FOR_THE_MEAN, utilisation)

    def interval(rng: np.random.Generator) -> Interval:
        kept = responses_s(rng, n, utilisation, 1, "exponential")[n // 100 :]
        return batch_means(kept, sections) if p is None else sectioning(kept, p, sections)

    what = "batch means" if p is None else f"P{100 * p:g} sectioning"
    return Case(f"M/M/1 {utilisation:g} {what}", truth_s(utilisation, p=p), interval, n)


def sequential_case(rel_half_width: float, utilisation: float) -> Case:
    """Runs added until the mean's interval is narrow enough: nominal only in the limit, so no band."""
    n = int(run_length(FOR_THE_MEAN, utilisation) * (1 + WARMUP_SHARE))
    rule = StoppingRule(rel_half_width)

    def interval(rng: np.random.Generator) -> Interval:
        def mean_s(_: int) -> float:
            return float(responses_s(rng, n, utilisation, 1, "exponential")[n // 10 :].mean())

        return run_until(rule, mean_s).interval

    truth = truth_s(utilisation)
    return Case(
        f"M/M/1 {utilisation:g} mean, stop at {rel_half_width:g}", truth, interval, n, held_to_band=False
    )


def cases() -> Iterator[Case]:
    """Everything the study measures."""
    for utilisation in (0.5, 0.8, 0.9):
        yield pipeline_case(0.99, utilisation)
        yield pipeline_case(None, utilisation)
        yield pipeline_case(None, utilisation, servers=16)
        yield pipeline_case(None, utilisation, sizes="deterministic")
        yield pipeline_case(None, utilisation, sizes="hyperexponential")
    yield single_run_case(None, 0.8)
    yield single_run_case(0.99, 0.8)
    yield sequential_case(0.05, 0.5)
    yield sequential_case(0.05, 0.8)


def coverage(case: Case, macro: int, seed: int = 1) -> tuple[float, float, float]:
    """Share of intervals that hold the truth, their mean relative half-width, and the mean relative error."""
    key = zlib.crc32(case.name.encode())  # cases must not share their luck
    intervals = [case.interval(np.random.default_rng([seed, key, r])) for r in range(macro)]
    return (
        float(np.mean([i.contains(case.truth) for i in intervals])),
        float(np.mean([i.relative_half_width for i in intervals])),
        float(np.mean([i.value / case.truth - 1 for i in intervals])),
    )


def main(macro: int = 2_000) -> int:
    """Print the table; 1 when a case that is held to the band lies outside."""
    outside = []
    print(f"{macro} macro-replications; standard error of a coverage {(0.95 * 0.05 / macro) ** 0.5:.4f}")
    header = (
        "requests".rjust(10) + "coverage".rjust(10) + "half-width".rjust(12) + "bias".rjust(10) + "s".rjust(7)
    )
    print("queue, utilisation, figure".ljust(36) + header)
    for case in cases():
        began = time.perf_counter()
        covered, width, bias = coverage(case, macro)
        within = BAND[0] <= covered <= BAND[1]
        if case.held_to_band and not within:
            outside.append(case.name)
        mark = "" if within else " outside" if case.held_to_band else " (not held to the band)"
        took = time.perf_counter() - began
        row = f"{case.name:36}{case.requests:10d}{covered:10.4f}{width:12.4f}{bias:10.4f}{took:7.0f}{mark}"
        print(row, flush=True)
    print(f"band {BAND[0]} to {BAND[1]}: " + (f"outside: {', '.join(outside)}" if outside else "all inside"))
    return 1 if outside else 0


def _queue(servers: int, sizes: str) -> str:
    return f"M/{ {'exponential': 'M', 'deterministic': 'D', 'hyperexponential': 'H2'}[sizes] }/{servers}"


if __name__ == "__main__":
    sys.exit(main(*(int(argument) for argument in sys.argv[1:])))
