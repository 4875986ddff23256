"""How often 95 % intervals of sweeps hold the truth: clusters lightly, heavily and nearly overloaded.

Run as ``python -m tests.study.cluster_coverage [runs] [groups]``. Every cell is simulated by the production
path (`CLUSTER.row`), in as many independent runs as asked for. Groups of runs are then drawn from that pool,
each without replacement, so that each is what a sweep of twenty seeds would have seen; intervals and flags
are those of tables, and where a table sets no flag the share of intervals that hold the truth is counted. It
is estimated without bias; that groups share runs adds to its error, which is measured between eight parts of
the pool and printed.

The truth of the transient is the mean over the pool. That of the steady state comes from other, long runs
after a long warm-up;
for the P99 it is the mean over their windows.

Exits with status 1 when a coverage without a flag lies outside the band. 8,000 runs a cell take about
half an hour of one core.
"""

from __future__ import annotations

import sys
import time
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from fastsim.stats import is_long_enough, mean_interval, quantile, skewness_adjusted
from fastsim.sweep.experiments.cluster import CLUSTER, serve
from fastsim.sweep.params import Params

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

BAND = (0.935, 0.965)
SEEDS = 20
PARTS = 8
SEED, LONG_SEED = 1, 2
ROUTERS = ("affinity_threshold", "least_loaded")
FIGURES = ("latency_mean_s", "latency_p99_s", "hit_rate")
OF_FLAGS = ("samples", "utilisation", "throughput_rps")
LONG_RUNS, LONG_WINDOWS = 1_600, 2  # of the steady state's truth


@dataclass(frozen=True)
class Setting:
    """Two routers on one workload.

    Attributes
    ----------
    calibrates : bool
        Whether the constant of `is_long_enough` was chosen by this setting; the others test it.
    """

    name: str
    estimand: str
    engine: str
    workload: str
    rate_rps: float
    duration_s: float = 600.0
    replicas: int = 4
    calibrates: bool = False
    more: Mapping[str, Any] = field(default_factory=dict)

    def params(self) -> list[Params]:
        """The routers' cells, settled."""
        cells = [
            CLUSTER.validate(
                {
                    "router": router,
                    "estimand": self.estimand,
                    "workload": {
                        "name": self.workload,
                        "rate_rps": self.rate_rps,
                        "duration_s": self.duration_s,
                        **self.more,
                    },
                    "cluster": {"engine": self.engine, "replicas": self.replicas},
                }
            )
            for router in ROUTERS
        ]
        return list(CLUSTER.settle(cells, SEED, lambda text: print(f"# {text}")))

    def __str__(self) -> str:
        """One line."""
        traffic = f"{self.workload} {self.rate_rps:g}/s, {self.duration_s:g} s"
        return f"{self.name}: {self.estimand}, {self.engine}, {traffic}"


def settings() -> Iterator[Setting]:
    """Calibration on long documents from an empty start; tests on the steady state and other workloads."""
    for engine in ("lecture", "vllm"):
        for name, rate_rps in (
            ("light", 0.75),
            ("heavy", 1.25),
            ("heavier", 1.5),
            ("nearly overloaded", 2.0),
        ):
            yield Setting(name, "transient", engine, "long_documents", rate_rps, calibrates=True)
        yield Setting("light", "steady", engine, "long_documents", 0.75)
        yield Setting("heavy", "steady", engine, "long_documents", 1.25)
    yield Setting("longer", "transient", "lecture", "long_documents", 1.25, 2400.0)
    yield Setting("heavy", "transient", "vllm", "tool_use", 30.0, 120.0)
    yield Setting(
        "bursty", "transient", "vllm", "long_documents", 1.0, more={"arrivals": "gamma", "arrival_cv": 2.0}
    )


@dataclass(frozen=True)
class Pool:
    """Independent runs of a cell.

    Attributes
    ----------
    figures : dict of str to float64[runs]
    load : float or None
        Offered load over capacity.
    """

    figures: dict[str, Floats]
    load: float | None


def pools(cells: list[Params], runs: int) -> list[Pool]:
    """Simulate both routers on the same workloads."""
    rows: list[list[dict[str, Any]]] = [[] for _ in cells]
    for replicate in range(runs):
        workload = CLUSTER.prepare(cells[0], SEED, replicate)
        for cell, of_one in zip(cells, rows, strict=True):
            of_one.append(CLUSTER.row(cell, workload, SEED, replicate))
    return [
        Pool(
            {name: np.array([row[name] for row in of_one]) for name in (*FIGURES, *OF_FLAGS)},
            of_one[0]["offered_load"],
        )
        for of_one in rows
    ]


def long_truths(cells: list[Params], setting: Setting) -> list[dict[str, float]]:
    """Figures of the steady state of both routers, from windows of long runs."""
    found: list[dict[str, float]] = []
    warmup_s = 2.0 * cells[0]["warmup_s"]
    length_s = LONG_WINDOWS * setting.duration_s
    edges = warmup_s + setting.duration_s * np.arange(LONG_WINDOWS + 1)
    for cell in cells:
        longer = {
            **cell,
            "warmup_s": warmup_s + length_s,
        }  # a window more than is looked at, for no end to show
        sums = np.zeros(4)
        p99s: list[float] = []
        for replicate in range(LONG_RUNS):
            columns = serve(
                longer, CLUSTER.prepare(longer, LONG_SEED, replicate), LONG_SEED, replicate
            ).columns
            first, *cuts, last = np.searchsorted(columns["arrival_s"], edges)
            latency_s = (columns["done_s"] - columns["arrival_s"])[first:last]
            p99s += [quantile(part, 0.99) for part in np.split(latency_s, np.array(cuts) - first)]
            hit, prompt = columns["hit_tok"][first:last].sum(), columns["prompt_tok"][first:last].sum()
            sums += (latency_s.sum(), latency_s.size, hit, prompt)
        found.append(
            {
                "latency_mean_s": sums[0] / sums[1],
                "latency_p99_s": float(np.mean(p99s)),
                "hit_rate": sums[2] / sums[3],
            }
        )
    return found


@dataclass(frozen=True)
class Line:
    """A figure of a cell, or of the difference of two.

    Attributes
    ----------
    values : float64[runs]
    truth : float
    sides : tuple of Pool
        The cells it is of, whose load and length decide about the flag.
    settled : bool
        Whether the steady state was reached.
    """

    name: str
    values: Floats
    truth: float
    sides: tuple[Pool, ...]
    settled: bool

    def flagged(self, chosen: Ints) -> bool:
        """Whether a table of these runs would say that the interval cannot be trusted."""
        return not (self.settled and all(trusted(side, chosen) for side in self.sides))


def trusted(pool: Pool, chosen: Ints) -> bool:
    """What `fastsim.sweep.summary` asks."""
    work = (pool.figures["utilisation"] / pool.figures["throughput_rps"])[chosen]
    cv = float(work.std(ddof=1) / work.mean())
    return is_long_enough(float(pool.figures["samples"][chosen].sum()), pool.load, cv)


def lines(setting: Setting, found: list[Pool], cells: list[Params]) -> Iterator[Line]:
    """What a table prints."""
    truths = long_truths(cells, setting) if setting.estimand == "steady" else None
    settled = all(cell.get("settled", True) for cell in cells)
    for place, pool in enumerate(found):
        for name in FIGURES:
            values = pool.figures[name]
            truth = truths[place][name] if truths else float(values.mean())
            yield Line(f"{ROUTERS[place]} {name}", values, truth, (pool,), settled)
    for name in FIGURES:
        values = found[1].figures[name] - found[0].figures[name]
        truth = truths[1][name] - truths[0][name] if truths else float(values.mean())
        yield Line(f"difference {name}", values, truth, tuple(found), settled)


@dataclass(frozen=True)
class Covered:
    """Shares of the groups: whose intervals by t and as in tables hold the truth, and that are flagged."""

    plain: float
    ours: float
    error: float
    flagged: float


def coverage(line: Line, number: int) -> Covered:
    """Draw groups from each part of the pool, a run at most once a group; coverage where there is no flag.

    Where more than nine in ten groups are flagged, the coverage is that of all.
    """
    rng = np.random.default_rng([SEED, zlib.crc32(line.name.encode())])  # figures must not share their luck
    runs = len(line.values) // PARTS
    hits = np.empty((PARTS, number // PARTS, 3))
    for part in range(PARTS):
        for place in range(number // PARTS):
            chosen = part * runs + rng.choice(runs, SEEDS, replace=False)
            values = line.values[chosen]
            plain, ours = mean_interval(values), skewness_adjusted(values)
            hits[part, place] = plain.contains(line.truth), ours.contains(line.truth), line.flagged(chosen)
    flagged = float(hits[:, :, 2].mean())
    counted = np.ones(hits.shape[:2]) if flagged > 0.9 else 1.0 - hits[:, :, 2]
    by_part = (hits[:, :, 1] * counted).sum(axis=1) / counted.sum(axis=1)
    share = counted.sum()
    return Covered(
        float((hits[:, :, 0] * counted).sum() / share),
        float((hits[:, :, 1] * counted).sum() / share),
        float(by_part.std(ddof=1)) / PARTS**0.5,
        flagged,
    )


def main(runs: int = 8_000, number: int = 2_000, only: str = "") -> int:
    """Print the table; 1 when a coverage without a flag lies outside the band."""
    outside: list[str] = []
    print(f"{runs} runs a cell, {number} groups of {SEEDS}; percentages: covered by t, as in tables, flagged")
    for setting in settings():
        if only not in str(setting):
            continue
        began = time.process_time()
        cells = setting.params()
        found = pools(cells, runs)
        loads = ", ".join(f"{router} {pool.load:.3f}" for router, pool in zip(ROUTERS, found, strict=True))
        use = "calibration" if setting.calibrates else "test"
        print(f"\n{setting} ({use}; loads {loads}; warm-up {cells[0]['warmup_s']:g} s)", flush=True)
        header = "figure".ljust(40) + "truth".rjust(10) + "mean".rjust(10) + "skewness".rjust(9)
        print(header + "t".rjust(7) + "table".rjust(7) + "error".rjust(7) + "flagged".rjust(8))
        for line in lines(setting, found, cells):
            covered = coverage(line, number)
            within = BAND[0] <= covered.ours <= BAND[1]
            if not within and covered.flagged <= 0.9:
                outside.append(f"{setting}: {line.name}")
            mark = "" if within or covered.flagged > 0.9 else " outside"
            shares = f"{100 * covered.plain:7.1f}{100 * covered.ours:7.1f}{100 * covered.error:7.2f}"
            middle = f"{line.truth:10.5g}{line.values.mean():10.5g}{float(stats.skew(line.values)):9.2f}"
            print(f"{line.name:40}{middle}{shares}{100 * covered.flagged:8.1f}{mark}", flush=True)
        print(f"# {time.process_time() - began:.0f} CPU s", flush=True)
    print(f"band {BAND[0]} to {BAND[1]}: " + (f"outside: {'; '.join(outside)}" if outside else "all inside"))
    return 1 if outside else 0


if __name__ == "__main__":
    given = sys.argv[1:]
    sys.exit(main(*map(int, given[:2]), only="".join(given[2:])))
