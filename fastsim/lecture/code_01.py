"""The figures of the lecture's code 01 (classic load balancing) beside ours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsim.lecture.progress import counted
from fastsim.lecture.verdicts import Row, claim, exact, figure, formula, measured, middle
from fastsim.queueing import balls_in_bins, simulation
from fastsim.queueing.balls_theory import asymptotic_max
from fastsim.queueing.result import QueueResult
from fastsim.stats import Interval, mean_interval, paired_ratio

__all__ = ["code_01", "exercises"]

Array = NDArray[np.float64]

SEED = 1
SERVERS, UTILISATION, PERIOD = 16, 0.9, 4.0
# The lecture does not give its heavy-tailed law. This one has a coefficient of variation of 5.7.
HEAVY = "bounded_pareto(alpha=1.5, ratio=10000)"
LONG, LONG_RUNS, WARMUP = 1_200_000, 20, 50_000
HEAVY_LONG, HEAVY_RUNS = 1_600_000, 96  # a few huge sizes decide the mean
SHORT, SHORT_RUNS = 50_000, 160  # the lecture's run, from empty servers
HEAVY_SEEDS = 8  # that the lecture averages over
THROWS, FEW_TRIALS = 2_000, 5  # the fewest throws whose mean can be 8.2, as 5.4, 3.0 and 3.4
POLICIES = {
    "random": "random",
    "round_robin": "round robin",
    "jsq": "shortest queue",
    "jsq_d": "best of two",
    "lwl": "least work left",
}
TIME = "mean service times"


@dataclass(frozen=True)
class _Runs:
    """One policy in one setting: runs long enough for an interval, and runs as short as the lecture's."""

    long: QueueResult
    short: QueueResult

    def __call__(self, name: str) -> tuple[Array, Array]:
        return self.long.runs[name], self.short.runs[name]

    @property
    def effort(self) -> str:
        """How much was simulated for the interval."""
        return f"{self.long.replications} runs of {self.long.requests:,} requests"


def code_01(workers: int = 1) -> list[Row]:
    """Simulate all that code 01 of the lecture shows (C1 to C8); less than a minute on two cores.

    Parameters
    ----------
    workers : int
        Threads; the result does not depend on it.
    """
    policies = list(POLICIES)
    fresh = {name: _simulate(name, workers) for name in counted(policies, "exponential sizes", len(policies))}
    heavy = {
        name: _simulate(name, workers, size=HEAVY)
        for name in counted(policies, "heavy-tailed sizes", len(policies))
    }
    old = {name: _simulate(name, workers, update="periodic", period=PERIOD) for name in ("jsq", "jsq_d")}
    return [*_balls(workers), *_exponential(fresh), *_heavy_tailed(heavy), *_stale(fresh, old)]


def exercises(workers: int = 1) -> list[Row]:
    """Exercises 1 and 2, which are C1 to C3 and random dispatching of C4.

    Parameters
    ----------
    workers : int
        Threads; the result does not depend on it.
    """
    found = _simulate("random", workers)
    low, high = middle(found.short.runs["response_mean"])
    error = (high - low) / 2.0 / float(found.long.runs["response_mean"].mean())
    note = f"half the range that holds 95 % of single runs of {SHORT:,}; read as 0.05 to 0.25"
    quantity = "relative error of a run, random"
    return [
        *(replace(row, id="E1") for row in _balls(workers)),
        _measured("E2", "random", found, "response_mean", 10.0, 2, "theory's figure"),
        _measured("E2", "random", found, "response_mean", 11.56, 2),
        formula("E2", quantity, "", "one or two tenths", error, 0.05 <= error <= 0.25, note),
    ]


def _simulate(dispatcher: str, workers: int, **setting: Any) -> _Runs:
    def runs(requests: int, warmup: int, replications: int, seed: int) -> QueueResult:
        return simulation.simulate(
            SERVERS,
            dispatcher,
            utilisation=UTILISATION,
            requests=requests,
            warmup=warmup,
            replications=replications,
            quantiles=(0.99,),
            seed=seed,
            workers=workers,
            **setting,
        )

    long = (HEAVY_LONG, WARMUP, HEAVY_RUNS) if setting.get("size") == HEAVY else (LONG, WARMUP, LONG_RUNS)
    return _Runs(runs(*long, SEED), runs(SHORT, 0, SHORT_RUNS, SEED + 1))


def _balls(workers: int) -> Iterator[Row]:
    for name, bins, said in (("C1", 1_000, (5.4, 3.0)), ("C2", 100_000, (8.2, 3.4))):
        for choices, number in enumerate(said, start=1):
            found = balls_in_bins.balls(bins, choices=choices, trials=THROWS, seed=SEED, workers=workers)
            few = found.maxima.reshape(-1, FEW_TRIALS).mean(axis=1)
            law = found.theory
            note = f"{THROWS:,} throws of {bins:,} balls"
            note += f"; {law.kind} {law.law.mean:.3f}" if law else ""
            quantity = f"mean fullest of {bins:,} bins, {_choices(choices)}"
            spread = (few, f"means of {FEW_TRIALS} throws")
            yield figure(name, quantity, "balls", number, 1, found.mean, spread, note)
    for bins, said in ((100_000, (4.71, 3.53)), (1_000_000, (5.26, 3.79))):
        for choices, number in enumerate(said, start=1):
            quantity = f"asymptotic fullest of {bins:,} bins, {_choices(choices)}"
            note = "a formula, its leading term only"
            yield exact("C3", quantity, "balls", number, asymptotic_max(bins, choices), 2, note)


def _choices(choices: int) -> str:
    return "random" if choices == 1 else "best of two"


def _exponential(runs: dict[str, _Runs]) -> Iterator[Row]:
    """C4 to C6: exponential sizes."""
    ids = {"random": "C4", "round_robin": "C5", "jsq": "C6", "jsq_d": "C6", "lwl": "C6"}
    for name, found in runs.items():
        said = 11.56 if name == "random" else None
        yield _measured(ids[name], name, found, "response_mean", said, 2)
        yield _measured(ids[name], name, found, "response_p99")
        if name == "random":
            yield _measured("C4", name, found, "response_mean", 10.0, 2, "theory's figure")
        if name == "round_robin":
            yield _half(found, runs["random"])
    note = "we take 'hardly any' as a tenth of random's wait"
    pair = runs["jsq"], runs["random"]
    quantity = "shortest queue / random, mean wait"
    yield _claim("C6", quantity, "hardly any queueing", pair, "wait_mean", (0.0, 0.1), note)
    note = "least work left is one shared queue (M/M/16); we take 'like' as within a quarter"
    pair = runs["jsq"], runs["lwl"]
    quantity = "shortest queue / shared queue, mean"
    yield _claim("C6", quantity, "behaves like it", pair, "response_mean", (0.75, 1.25), note)


def _heavy_tailed(runs: dict[str, _Runs]) -> Iterator[Row]:
    """C7: heavy-tailed sizes."""
    for name, found in runs.items():
        yield _measured("C7", name, found, "response_mean", setting="heavy tail")
        yield _measured("C7", name, found, "response_p99", setting="heavy tail")
    a, b = runs["round_robin"]("response_mean"), runs["random"]("response_mean")
    few = a[1].reshape(-1, HEAVY_SEEDS).mean(axis=1) / b[1].reshape(-1, HEAVY_SEEDS).mean(axis=1)
    low, high = middle(few)
    noise = low <= 1.0 <= high
    found = _ratio(runs["round_robin"], runs["random"], "response_mean")
    note = f"means over {HEAVY_SEEDS} runs of {SHORT:,} range over {low:.2f} to {high:.2f}"
    note += ", 1 among them" if noise else ""
    note += "" if found.contains(1.0) else "; only many long runs tell the two apart"
    note += f"; {runs['random'].effort}"
    verdict = "agrees" if noise else "disagrees"
    yield measured("C7", "round robin / random, mean, heavy tail", "", "1 within noise", found, verdict, note)
    note = f"the whole interval should be above 1; sizes are {HEAVY}, as the lecture does not say"
    pair = runs["jsq"], runs["lwl"]
    quantity = "shortest queue / least work left, P99, heavy tail"
    yield _claim("C7", quantity, "clearly above 1", pair, "response_p99", (1.0, np.inf), note)


def _stale(fresh: dict[str, _Runs], old: dict[str, _Runs]) -> Iterator[Row]:
    """C8: queue lengths refreshed every four mean service times."""
    for name, found in old.items():
        for metric in ("response_mean", "response_p99"):
            yield _measured("C8", name, found, metric, setting="T = 4")
    mean, blind = "response_mean", fresh["random"]
    pair, note = (old["jsq"], blind), "the whole interval should be above 1"
    yield _claim("C8", "shortest queue at T = 4 / random, mean", "above 1", pair, mean, (1.0, np.inf), note)
    pair, note = (old["jsq_d"], blind), "the whole interval should be below 1"
    yield _claim("C8", "best of two at T = 4 / random, mean", "below 1", pair, mean, (0.0, 1.0), note)
    worse = _ratio(old["jsq"], fresh["jsq"], mean)
    note = (
        "we take 'hardly' as a tenth; little only beside shortest queue, "
        f"whose mean grows {worse.value:.1f} times"
    )
    pair = old["jsq_d"], fresh["jsq_d"]
    yield _claim("C8", "best of two, T = 4 / fresh, mean", "hardly changes", pair, mean, (0.9, 1.1), note)


def _measured(
    id: str,
    name: str,
    runs: _Runs,
    metric: str,
    lecture: float | None = None,
    decimals: int = 2,
    setting: str = "",
) -> Row:
    long, short = runs(metric)
    quantity = f"{'P99' if metric.endswith('p99') else 'mean'} response, {POLICIES[name]}"
    quantity += f", {setting}" if setting else ""
    theory = runs.long.theory
    note = ""
    if theory:
        value = theory.response_mean if metric == "response_mean" else (theory.response or {}).get(0.99)
        note = f"; {theory.model} ({theory.kind}) {value:.4g}" if value else ""
    found, spread = mean_interval(long), (short, f"single runs of {SHORT:,}")
    return figure(id, quantity, TIME, lecture, decimals, found, spread, f"{runs.effort}{note}")


def _half(turns: _Runs, random: _Runs) -> Row:
    """C5's 'about half': one decimal, as the words have no more."""
    found = _ratio(turns, random, "response_mean")
    spread = (turns("response_mean")[1] / random("response_mean")[1], f"single runs of {SHORT:,}")
    note = f"'about half' is read as 0.5 to one decimal; {turns.effort}"
    if turns.long.theory and random.long.theory:
        exact = (turns.long.theory.response_mean or 0.0) / (random.long.theory.response_mean or 1.0)
        limit = 0.5 * (1.0 + 1.0 / SERVERS)
        note += f"; exact {exact:.3f}, and (1 + 1/N) / 2 = {limit:.2f} in heavy traffic: a little above half"
    return figure("C5", "round robin / random, mean", "", 0.5, 1, found, spread, note)


def _claim(
    id: str,
    quantity: str,
    lecture: str,
    pair: tuple[_Runs, _Runs],
    metric: str,
    wanted: tuple[float, float],
    note: str,
) -> Row:
    found = _ratio(*pair, metric)
    return claim(id, quantity, lecture, found, wanted, f"{note}; {pair[0].effort}")


def _ratio(a: _Runs, b: _Runs, metric: str) -> Interval:
    """Of the long runs, which share arrivals and sizes."""
    return paired_ratio(a(metric)[0], b(metric)[0])
