"""How often the verdict on overload is right, by loads and by the drift of the backlog.

`by_load` tries `stable` on settings whose capacity is known: by formula, or from long open runs of ever
closer rates, of which the backlog grows in some and not in others. `of_queues` does so for servers behind a
dispatcher. `by_drift` makes the table in the docstring of fastsim.stats.stability.is_stable.

Run as ``python -m tests.study.stability [load|queues|drift] [runs]``; the first two take a few minutes each,
the last ten with 4,000 runs a cell.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fastsim import Cluster, simulate
from fastsim.cluster.step_time import StepTime
from fastsim.queueing import make_spec
from fastsim.queueing.capacity import offered_load
from fastsim.queueing.run import Run
from fastsim.queueing.spec import QueueSpec
from fastsim.queueing.warmup import keeps_up
from fastsim.stats.stability import backlog_score, point_is_stable
from fastsim.workloads import make
from tests.study.queues import run

# --- by loads -----------------------------------------------------------------------------------------------

LOADS = (0.8, 0.95, 1.05, 1.15, 3.0)  # outside 0.97 to 1.03, where nobody can tell
REQUESTS = (60, 200, 1_000, 3_000)  # lengths of the runs that are judged
LONG = 40_000  # requests of a run that shows whether the backlog grows
GROWTH = 0.01  # of all arrivals; what is above capacity by 1 % leaves 1 % of them behind


@dataclass(frozen=True)
class Setting:
    """A workload, a cluster and a router, and the capacity if there is a formula."""

    workload: str
    cluster: Cluster
    router: str
    params: dict[str, Any] = field(default_factory=dict)
    router_params: dict[str, Any] = field(default_factory=dict)
    known_rps: float | None = None

    @property
    def name(self) -> str:
        """What it is."""
        return f"{self.workload}, {self.cluster.replicas} x {self.cluster.gpu}, {self.router}"

    def traffic(self, rate_rps: float, requests: int) -> Any:
        """Its workload at a rate."""
        return make(self.workload, rate_rps=rate_rps, requests=requests, **self.params)

    def growth(self, rate_rps: float, requests: int = LONG) -> float:
        """Requests left behind, as a share of those that come in the second half of a run.

        It begins with a quiet hour of four requests: some routers send all to the replica that served these.
        """
        workload = self.traffic(rate_rps, requests)
        arrival_s = np.where(
            np.arange(requests) < 4, 900.0 * np.arange(requests), 3600.0 + workload.arrival_s
        )
        workload = replace(workload, arrival_s=arrival_s)
        done_s = np.sort(simulate(workload, self.cluster, self.router, self.router_params).columns["done_s"])
        in_system = np.arange(1, requests + 1) - np.searchsorted(done_s, workload.arrival_s, side="right")
        at = np.linspace(requests // 2, requests - 1, 400).astype(np.int64)
        return float(np.polyfit(at, in_system[at], 1)[0])

    def capacity_rps(self) -> float:
        """By formula, or halfway between two rates 1 % apart of which the backlog grows at one."""
        if self.known_rps is not None:
            return self.known_rps
        low = self.cluster.replicas / 8.0
        while self.growth(low) > GROWTH:
            low /= 2.0
        high = 2.0 * low
        while self.growth(high) <= GROWTH:
            low, high = high, 2.0 * high
        while high > 1.01 * low:
            middle = (low * high) ** 0.5
            low, high = (low, middle) if self.growth(middle) > GROWTH else (middle, high)
        return (low * high) ** 0.5


def _prefills(replicas: int, speeds: list[float] | None = None) -> Cluster:
    """Steps of 0.1 s, of which each holds a prompt of 512 tokens."""
    step = StepTime.fixed(0.1, 0.02)
    return Cluster(replicas, step_time=step, kv_tok=1 << 16, max_batch_tok=512, max_seqs=64, speeds=speeds)


def by_formula() -> Iterator[Setting]:
    """Prompts that share nothing: 10 a second and replica, or 8 / 101 a step where eight decode together."""
    alone = {"prompt_tok": 512, "output_tok": 1}
    for router in ("round_robin", "random", "least_loaded", "power_of_two"):
        for replicas in (1, 4, 8):
            yield Setting("unique", _prefills(replicas), router, alone, known_rps=10.0 * replicas)
    uneven = _prefills(3, [1.0, 1.0, 0.5])
    yield Setting("unique", uneven, "round_robin", alone, known_rps=15.0)
    yield Setting("unique", uneven, "least_work", alone, known_rps=25.0)
    step = StepTime.linear(0.02, 1e-4, 5e-4)
    decoding = Cluster(2, step_time=step, kv_tok=1 << 16, max_batch_tok=512, max_seqs=8)
    each_s = 0.02 + 8 / 101 * 56 * 1e-4 + 8 * 100 / 101 * 5e-4
    tokens = {"prompt_tok": 56, "output_tok": 101}
    yield Setting("unique", decoding, "round_robin", tokens, known_rps=2 * 8 / 101 / each_s)


def by_bracketing() -> Iterator[Setting]:
    """Workloads that share, and sizes that vary."""
    looking = ("prefix_affinity", "affinity_threshold", "cache_aware_guard")
    theirs = ("sglang_cache_aware_lowest_load", "vllm_cache_aware", "epp", "dynamo_kv")
    spread = {
        "prompt_tok": 2000,
        "prompt_cv": 1.0,
        "output_tok": 300,
        "output_cv": 1.0,
        "length_law": "lognormal",
    }
    fixed = {"prompt_tok": 9800, "output_tok": 430}
    for router in ("round_robin", "least_loaded"):
        yield Setting("unique", Cluster(2, gpu="a100"), router, fixed)
    for router in ("round_robin", "random", "least_work", "consistent_hash_bounded"):
        yield Setting("unique", Cluster(8), router, spread)
    for workload in ("long_documents", "tool_use", "video_qa"):
        for router in ("round_robin", "random", *looking, *theirs):
            yield Setting(workload, Cluster(4), router)
    # With the usual tails the sessions of 40,000 turns differ by several per cent in what they ask for.
    even: dict[str, Any] = {f"{name}_cv": 0.3 for name in ("turns", "first", "turn", "output", "think")}
    for router in ("least_loaded", "session_sticky", "consistent_hash_bounded", "vllm_cache_aware"):
        yield Setting("embodied_agent", Cluster(4), router)
        yield Setting("agentic", Cluster(4), router, even)
    for router in ("round_robin", "affinity_threshold", "epp"):
        yield Setting("programming", Cluster(4), router)
    yield Setting("tool_use", Cluster(4), "mooncake", router_params={"ttft_slo_s": 0.0, "tbt_slo_s": 0.0})


def judged(
    setting: Setting, loads: tuple[float, ...] = LOADS, first: int = 0
) -> list[tuple[float, bool, float]]:
    """(true load, verdict, load told) of a setting at some rates, in runs of several lengths."""
    capacity_rps = setting.capacity_rps()
    found = []
    for k, load in enumerate(loads):
        workload = setting.traffic(load * capacity_rps, REQUESTS[(first + k) % len(REQUESTS)])
        summary = simulate(workload, setting.cluster, setting.router, setting.router_params).summary
        found.append((load, summary["stable"], summary["offered_load"]))
    return found


def by_load() -> None:
    """Print each setting's capacity over ours, and count the verdicts that are right."""
    right = wrong = 0
    for first, setting in enumerate([*by_formula(), *by_bracketing()]):
        found = judged(setting, first=first)
        mistakes = [load for load, stable, _ in found if stable != (load < 1.0)]
        right, wrong = right + len(found) - len(mistakes), wrong + len(mistakes)
        told = found[0][2] / found[0][0]
        how = "open runs" if setting.known_rps is None else "formula"
        said = f"   wrong at {mistakes}" if mistakes else ""
        print(f"{setting.name:64}{told:7.3f} of the load by {how}{said}", flush=True)
    print(f"{right} of {right + wrong} verdicts are right ({right / (right + wrong):.1%})")


# --- queues -------------------------------------------------------------------------------------------------

LEFT_BEHIND = 0.01  # of a server's time, by which its backlog grows


def queue_growth(spec: QueueSpec) -> float:
    """Time of work by which the backlog of some server grows, over the time in which it does (FCFS)."""
    # Servers that nobody spares each have a backlog of their own, which takes longer to tell from chance.
    requests = 400_000 if spec.dispatcher.score is not None else 6_000_000
    served, seen = Run(spec, 1, 0), []
    for _ in range(2):
        for _ in served.stretches(requests // 2):
            pass
        seen.append((served.clock, np.maximum(served._free - served.clock, 0.0)))
    (middle, before), (end, after) = seen
    return float((after - before).max() / (end - middle))


def queues() -> Iterator[tuple[str, Callable[[float], QueueSpec]]]:
    """Dispatchers on servers of unequal speeds, and questions at a rate."""
    cases: list[tuple[str, dict[str, Any]]] = [
        *[(name, {}) for name in ("random", "weighted_random", "round_robin", "sita", "jsq", "jsq_d", "lwl")],
        *[(name, {}) for name in ("lwl_d", "sed", "sed_d", "jiq")],
        *[("jsq_d", {"d": 3, "replacement": False}), ("jsq_d", {"d": 1, "memory": True})],
        *[("jsq", {"update": "periodic", "period": 2.0}), ("jsq_d", {"update": "own", "dispatchers": 3})],
    ]
    for dispatcher, more in cases:
        for speeds in ([4.0, 1.0, 1.0, 1.0], [5.0, 5.0, *[1.0] * 6]):
            for size in ("exponential", "lognormal(cv=2)"):

                def question(rate: float, given: Any = (dispatcher, speeds, size, more)) -> QueueSpec:
                    name, speeds, size, more = given
                    some = {"speeds": speeds, "size": size, "allow_unstable": True, **more}
                    return make_spec(len(speeds), name, rate=rate, **some)

                yield f"{dispatcher} {more or ''} {len(speeds)} servers, {size}", question


def of_queues() -> None:
    """Print each question's capacity over ours, and count the verdicts that are right."""
    right = wrong = 0
    for name, question in queues():
        low, high = 0.5, 1.0
        while queue_growth(question(high)) <= LEFT_BEHIND:
            low, high = high, 2.0 * high
        while high > 1.005 * low:
            middle = (low * high) ** 0.5
            low, high = (low, middle) if queue_growth(question(middle)) > LEFT_BEHIND else (middle, high)
        rate = (low * high) ** 0.5
        mistakes = [load for load in LOADS if keeps_up(question(load * rate), 0) != (load < 1.0)]
        right, wrong = right + len(LOADS) - len(mistakes), wrong + len(mistakes)
        said = f"   wrong at {mistakes}" if mistakes else ""
        print(f"{name:64}{offered_load(question(rate)):7.3f} of the load by open runs{said}", flush=True)
    print(f"{right} of {right + wrong} verdicts are right ({right / (right + wrong):.1%})")


# --- by the drift of the backlog ----------------------------------------------------------------------------

LENGTHS = (300, 600, 2_000, 10_000, 50_000)
UTILISATIONS = (0.8, 0.9, 0.95, 1.05, 1.2, 2.0)
POINT = 20  # replications of a point


def scores(
    runs: int, n: int, utilisation: float, *, servers: int = 1, sizes: str = "exponential", seed: int = 1
) -> np.ndarray:
    """Backlog scores of independent runs."""
    rng = np.random.default_rng([seed, n, servers, round(1000 * utilisation)])
    return np.array(
        [backlog_score(*run(rng, n, utilisation, servers=servers, sizes=sizes)) for _ in range(runs)]
    )


def called_overloaded(score: np.ndarray, replications: int) -> float:
    """Share of points of so many replications that are called overloaded."""
    points = score[: len(score) // replications * replications].reshape(-1, replications)
    return float(np.mean([not point_is_stable(row) for row in points]))


def by_drift(runs: int = 4_000) -> None:
    """Print the percentage called overloaded, for single runs and for points of 20 replications."""
    for servers, sizes in (
        (1, "exponential"),
        (4, "exponential"),
        (16, "exponential"),
        (16, "deterministic"),
        (16, "hyperexponential"),
    ):
        print(f"\n{servers} servers, {sizes} sizes: % called overloaded, one run / {POINT} runs together")
        print("requests" + "".join(f"{u:>14}" for u in UTILISATIONS))
        for n in LENGTHS:
            cells = []
            for u in UTILISATIONS:
                z = scores(runs, n, u, servers=servers, sizes=sizes)
                cells.append(f"{100 * called_overloaded(z, 1):7.2f}/{100 * called_overloaded(z, POINT):6.1f}")
            print(f"{n:8d}" + "".join(cells), flush=True)


STUDIES: dict[str, Callable[..., None]] = {"load": by_load, "queues": of_queues, "drift": by_drift}

if __name__ == "__main__":
    chosen, *given = sys.argv[1:] or ["load"]
    STUDIES[chosen](*(int(a) for a in given))
