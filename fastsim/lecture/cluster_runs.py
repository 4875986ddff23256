"""The runs behind code 02 and 03: policies on the same workloads, seed by seed, until means are known.

A run is as long as the lecture's and starts empty, so that one set of runs gives both what its figures should
be on average and how far one run of it may stray. The lecture does not give all parameters of its workloads:
those of the generators are assumed, for long documents nearly none, for the others all but the lengths.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsim.cluster.config import Cluster
from fastsim.cluster.simulate import Result, simulate, warmup
from fastsim.lecture.progress import counted
from fastsim.lecture.verdicts import (
    CANNOT_TELL,
    REPEATS,
    VARIANT,
    Row,
    apart,
    claim,
    figure,
    formula,
)
from fastsim.stats import Interval, mean_interval, paired_difference, paired_ratio, quantile
from fastsim.stats.stability import NEAR
from fastsim.stats.stopping import StoppingRule
from fastsim.workloads import Workload, make

__all__ = [
    "Bench",
    "Policy",
    "Sample",
    "Traffic",
    "again",
    "difference",
    "judged",
    "measure",
    "overloaded",
    "ratio",
    "requests",
    "shown",
    "variant",
]

Array = NDArray[np.float64]

SEED = 1
START, BATCH, MOST = 40, 10, 20_000  # seeds: at first, more after a look, at most
HALF_WIDTH = 0.05

# Metric -> what it is, its unit.
METRICS = {
    "mean": ("mean latency", "s"),
    "p99": ("P99 latency", "s"),
    "low_p99": ("P99 latency of low hits", "s"),
    "hit": ("hit rate", ""),
    "copies": ("copies of each cached token", ""),
    "busiest": ("busiest replica's share of requests", ""),
    "rate_rps": ("rate", "requests/s"),
    "capacity_rps": ("capacity", "requests/s"),
}
GROWING = ("mean", "p99", "low_p99")  # with the run, at overload: a figure of one run then tells nothing


@dataclass(frozen=True)
class Traffic:
    """A workload of the lecture, as long as its run.

    Parameters
    ----------
    name : str
        As rows call it.
    workload : str
    params : mapping
        The generator's parameters.
    duration_s : float
    """

    name: str
    workload: str
    params: Mapping[str, Any]
    duration_s: float = 600.0

    def but(self, words: str, **params: Any) -> Traffic:
        """The same with other parameters, which the name tells."""
        return Traffic(f"{self.name}, {words}", self.workload, {**self.params, **params}, self.duration_s)


def documents(rate_rps: float = 1.0, duration_s: float = 600.0) -> Traffic:
    """Questions about long documents."""
    longer = "" if duration_s == 600.0 else f" for {duration_s:,.0f} s"
    return Traffic(f"documents {rate_rps:g}/s{longer}", "long_documents", {"rate_rps": rate_rps}, duration_s)


def videos(rate_rps: float) -> Traffic:
    """Questions about videos."""
    return Traffic(f"video {rate_rps:g}/s", "video_qa", {"rate_rps": rate_rps})


def tools(rate_rps: float) -> Traffic:
    """Calls of tools."""
    return Traffic(f"tools {rate_rps:g}/s", "tool_use", {"rate_rps": rate_rps}, 300.0)


def programs(rate_rps: float) -> Traffic:
    """Parallel generations of programs."""
    return Traffic(f"programming {rate_rps:g}/s", "programming", {"rate_rps": rate_rps}, 300.0)


def agents(rate_rps: float) -> Traffic:
    """Steps of agents in a world."""
    return Traffic(f"agents {rate_rps:g}/s", "embodied_agent", {"rate_rps": rate_rps}, 120.0)


def hot_tool(rate_rps: float = 70.0, share: float = 0.4) -> Traffic:
    """Calls of tools of which one is hot."""
    params = {"rate_rps": rate_rps, "hottest_share": share}
    return Traffic(f"hot tool {share:.0%}, {rate_rps:g}/s", "tool_use", params, 300.0)


@dataclass(frozen=True)
class Policy:
    """A router and how replicas order their queues.

    Parameters
    ----------
    name : str
        As rows call it.
    router : str
    params : mapping
        The router's parameters.
    cluster : mapping
        What differs from the others' cluster.
    known : mapping
        What the router knows: `view`, `caches` and so on.
    """

    name: str
    router: str
    params: Mapping[str, Any] = field(default_factory=dict)
    cluster: Mapping[str, Any] = field(default_factory=dict)
    known: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Sample:
    """What a policy did to a traffic, seed by seed: metric -> float64[seeds]."""

    policy: Policy
    traffic: Traffic
    metrics: Mapping[str, Array]

    def __getitem__(self, metric: str) -> Array:
        return self.metrics[metric]

    @property
    def offered_load(self) -> float:
        """The mean rate over the capacity, which a run with all work waiting gives for the first seed."""
        return float(self["rate_rps"].mean() / self["capacity_rps"][0])

    @property
    def stable(self) -> bool:
        """Whether the load offered is at most the capacity, within its error.

        That the backlog does not grow in runs so short says little: the guard on documents at 2/s, 1.05 of
        its capacity, has a mean latency of 33 s after 600 s, 160 s after 6,000 s and 1,250 s after 30,000 s.
        """
        return self.offered_load <= 1.0 + NEAR

    @property
    def effort(self) -> str:
        """How much was simulated, and whether a mean means anything beyond it."""
        overload = "" if self.stable else f", overloaded ({self.offered_load:.2f} of the capacity)"
        return f"{len(self['mean']):,} runs of {self.traffic.duration_s:g} s{overload}"


@dataclass(frozen=True)
class Bench:
    """Runs policies side by side.

    Parameters
    ----------
    workers : int
        Threads; results do not depend on it.
    rel_half_width : float, optional
        Seeds are added until every policy's mean latency is known so well, with 95 % confidence. None: the
        seeds to start with do, where only a direction is at issue.
    """

    workers: int = 1
    rel_half_width: float | None = HALF_WIDTH

    @property
    def brief(self) -> Bench:
        """The same with the seeds to start with and no more."""
        return replace(self, rel_half_width=None)

    def __call__(self, traffic: Traffic, policies: Sequence[Policy], **cluster: Any) -> dict[str, Sample]:
        """Run policies on the same requests until their means are known; policy's name -> its sample."""
        from joblib import Parallel, delayed

        most = START if self.rel_half_width is None else max(START, MOST)
        width = HALF_WIDTH if self.rel_half_width is None else self.rel_half_width
        rule = StoppingRule(width, start=START, batch=BATCH, maximum=most)
        warmup(sorted({policy.router for policy in policies}))
        runs: list[list[dict[str, float]]] = []
        wanted = rule.start
        with Parallel(n_jobs=self.workers, backend="threading", return_as="generator") as pool:
            while wanted > len(runs):
                replicates = range(len(runs), wanted)
                found: Any = pool(delayed(_serve)(traffic, policies, cluster, n) for n in replicates)
                runs += counted(found, f"{traffic.name}, {len(policies)} policies", len(replicates))
                looks = [rule.decide([run[k]["mean"] for run in runs]) for k in range(len(policies))]
                if any(look.more for look in looks):  # what is likely to do, not batch by batch
                    wanted = max(len(runs) + BATCH, *(look.expected for look in looks))
        return {
            policy.name: Sample(policy, traffic, _columns([run[k] for run in runs]))
            for k, policy in enumerate(policies)
        }


def requests(traffic: Traffic, replicate: int) -> Workload:
    """The requests of a run, the same for all policies."""
    params = {**traffic.params, "duration_s": traffic.duration_s}
    return make(traffic.workload, seed=SEED, replicate=replicate, **params)


def _serve(
    traffic: Traffic, policies: Sequence[Policy], cluster: Mapping[str, Any], replicate: int
) -> list[dict[str, float]]:
    asked = requests(traffic, replicate)
    return [
        measure(
            simulate(
                asked,
                Cluster(**{"engine": "lecture", **cluster, **policy.cluster}),
                policy.router,
                policy.params,
                seed=SEED,
                replicate=replicate,
                **policy.known,
            ),
            with_capacity=replicate == 0,
        )
        for policy in policies
    ]


def measure(result: Result, *, with_capacity: bool = False) -> dict[str, float]:
    """The metrics of a run. A low hit is less than half of the prompt; the capacity takes one more run."""
    columns, summary = result.columns, result.figures
    latency_s = columns["done_s"] - columns["arrival_s"]
    low = 2 * columns["hit_tok"] < columns["prompt_tok"]
    return {
        "mean": summary["latency_mean_s"],
        "p99": quantile(latency_s, 0.99),
        "low_p99": quantile(latency_s[low], 0.99) if low.any() else np.nan,
        "hit": summary["hit_rate"],
        "copies": summary["copies"],
        "busiest": float(result.replicas["requests"].max() / len(latency_s)),
        "rate_rps": result.offered_rps or np.nan,
        "capacity_rps": result.summary["capacity_rps"] if with_capacity else np.nan,
    }


def _columns(runs: Sequence[Mapping[str, float]]) -> dict[str, Array]:
    return {name: np.array([run[name] for run in runs]) for name in METRICS}


# --- rows ---------------------------------------------------------------------------------------------------


def shown(
    id: str, sample: Sample, metric: str, lecture: float | None = None, decimals: int = 2, note: str = ""
) -> Row:
    """A metric's mean over runs, beside the lecture's figure if it has one."""
    name, unit = METRICS[metric]
    quantity = f"{name}, {sample.policy.name}, {sample.traffic.name}"
    found = mean_interval(sample[metric])
    note = _joined(sample.effort, note)
    row = figure(id, quantity, unit, lecture, decimals, found, _single(sample, sample[metric]), note)
    return _unless_overloaded(row, metric, sample)


def judged(
    id: str, sample: Sample, metric: str, words: str, wanted: tuple[float, float], note: str = ""
) -> Row:
    """A metric's mean over runs, beside words that we take for a range."""
    name, unit = METRICS[metric]
    quantity = f"{name}, {sample.policy.name}, {sample.traffic.name}"
    found = mean_interval(sample[metric])
    row = claim(id, quantity, words, found, wanted, _joined(sample.effort, note), unit)
    return _unless_overloaded(row, metric, sample)


def overloaded(id: str, sample: Sample, words: str, wanted: bool, note: str = "") -> Row:
    """Offered load over capacity, beside words that say whether it is too much."""
    load = sample.offered_load
    quantity = f"offered load over capacity, {sample.policy.name}, {sample.traffic.name}"
    held = not sample.stable if wanted else load < 1.0
    return formula(id, quantity, "", words, load, held, _joined("one run with all work waiting", note))


def ratio(
    id: str,
    over: Sample,
    under: Sample,
    lecture: float | str | None = None,
    wanted: int | tuple[float, float] = 1,
    *,
    metric: str = "mean",
    note: str = "",
) -> Row:
    """Two policies' ratio of a metric, paired by seed, beside the lecture's figure or words.

    `wanted` is the decimals of a figure, or the range that the whole interval should lie in for words.
    """
    quantity = f"{over.policy.name} / {under.policy.name}, {METRICS[metric][0]}, {over.traffic.name}"
    values = over[metric] / under[metric]
    found = paired_ratio(over[metric], under[metric])
    row = _beside(id, quantity, "", lecture, wanted, found, _single(over, values), _effort(over, under, note))
    return _unless_overloaded(row, metric, over, under)


def difference(
    id: str,
    of: Sample,
    less: Sample,
    lecture: float | str,
    wanted: int | tuple[float, float],
    *,
    metric: str = "hit",
    note: str = "",
) -> Row:
    """A metric of one policy less that of another, paired by seed, beside the lecture's figure or words."""
    name, unit = METRICS[metric]
    quantity = f"{of.policy.name} less {less.policy.name}, {name}, {of.traffic.name}"
    values = of[metric] - less[metric]
    found = paired_difference(of[metric], less[metric])
    row = _beside(id, quantity, unit, lecture, wanted, found, _single(of, values), _effort(of, less, note))
    return _unless_overloaded(row, metric, of, less)


def variant(row: Row) -> Row:
    """A row whose parameters are ours: what the lecture concludes under others than it had."""
    return apart(row, VARIANT) if row.verdict != CANNOT_TELL else row


def again(row: Row, what: str) -> Row:
    """A row of the same claim as another, which has counted: `what` tells how they differ."""
    return apart(row, REPEATS, what)


def _beside(
    id: str,
    quantity: str,
    unit: str,
    lecture: float | str | None,
    wanted: int | tuple[float, float],
    found: Interval,
    single: tuple[Array, str],
    note: str,
) -> Row:
    """A figure if `wanted` is its decimals, words if it is a range."""
    if isinstance(wanted, tuple):
        return claim(id, quantity, str(lecture), found, wanted, note, unit)
    assert not isinstance(lecture, str)
    return figure(id, quantity, unit, lecture, wanted, found, single, note)


def _unless_overloaded(row: Row, metric: str, *samples: Sample) -> Row:
    """No verdict on what grows with the run."""
    if metric in GROWING and row.lecture is not None and not all(sample.stable for sample in samples):
        return apart(row, CANNOT_TELL, "overload is no evidence")
    return row


def _effort(a: Sample, b: Sample, note: str) -> str:
    return _joined(a.effort if not a.stable else b.effort, note)


def _single(sample: Sample, values: Array) -> tuple[Array, str]:
    return values, f"single runs of {sample.traffic.duration_s:g} s"


def _joined(*notes: str) -> str:
    return "; ".join(filter(None, notes))
