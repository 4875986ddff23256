"""The runs behind code 04: one seed's demonstration of locate-solve, one seed's pools on three systems."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsim.lecture.progress import counted
from fastsim.selection.costs import Costs
from fastsim.selection.exhaustive import correct_counts
from fastsim.selection.latent import DIV, P1, Pool, demo_1
from fastsim.selection.searchers import Found, search
from fastsim.selection.searchers.greedy import with_model
from fastsim.selection.searchers.llmselector import votes
from fastsim.selection.systems import get
from fastsim.selection.worlds import Allocation, World

__all__ = ["ACCURACIES", "PRICES", "SYSTEMS", "across", "demonstration", "inside", "pool"]

Array = NDArray[np.float64]

A, B, C, D, E = range(5)
PRICES = (5.0, 3.0, 1.0, 0.5, 0.2)
SYSTEMS = ("locate_solve", "self_refine", "debate")
ACCURACIES = (1.0, 0.9, 0.8, 0.7, 0.6)  # of the diagnoser
BUDGET = 1000  # evaluated allocations, where a noisy diagnoser never settles
GREEDY = ("steepest_greedy", "coordinate_greedy")


def across(run: Callable[[int], dict[str, float]], seeds: Sequence[int], workers: int) -> dict[str, Array]:
    """Run every seed, and gather each figure over the seeds: name -> float64[seeds]."""
    from joblib import Parallel, delayed

    # Processes, as small arrays leave threads waiting for the interpreter.
    pool = Parallel(n_jobs=workers, backend="loky", return_as="generator")
    found: Any = pool(delayed(run)(seed) for seed in seeds)
    rows = list(counted(found, run.__name__.replace("_", " "), len(seeds)))
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def demonstration(seed: int) -> dict[str, float]:
    """What demonstration 1 measures, with its abilities and this seed."""
    train, test = demo_1(seed)
    costs = Costs.of_calls(train, PRICES)
    best = correct_counts(train).max() / train.questions
    start = (C, C)
    found = {name: search(train, name, start=start) for name in (*GREEDY, "llmselector")}
    noisy = search(train, "llmselector", {"diagnoser": 0.8}, start=start, rng=seed)
    values = {
        "train C+C": train.accuracy(start),
        "train A+C": train.accuracy((A, C)),
        "train C+B": train.accuracy((C, B)),
        "test C+C": test.accuracy(start),
        "test A+B": test.accuracy((A, B)),
        "test E+B": test.accuracy((E, B)),
        "stuck": float(all(found[name].allocation == start for name in GREEDY)),
        "selected": float(found["llmselector"].allocation == (A, B)),
        "selected, noisy": float(noisy.allocation == (A, B)),
        "evaluated": found["llmselector"].evaluated,
        "evaluated until found": _first_at(found["llmselector"], (A, B)),
        "tiny penalty inside": test.accuracy(inside(train, costs, start, 1e-6)),
        "tiny penalty after": _penalised(test, costs, start, 1e-6),
        "penalty 0.5": _penalised(test, costs, start, 0.5),
        "penalty 0.8": _penalised(test, costs, start, 0.8),
    }
    return values | {f"failed {name}": count for name, count in _failures(train, best)}


def _first_at(found: Found, allocation: Allocation) -> float:
    """Allocations evaluated when a search first came to one; NaN if never."""
    return next((step.evaluated for step in found.path if step.allocation == allocation), float("nan"))


def _failures(train: World, best: float) -> Iterator[tuple[str, float]]:
    """From how many of the 25 starts each searcher ends below the best accuracy."""
    starts = list(itertools.product(range(len(train.models)), repeat=train.slots))
    for name in (*GREEDY, "llmselector"):
        ends = (search(train, name, start=start).accuracy for start in starts)
        yield name, float(sum(end < best - 1e-12 for end in ends))


def _penalised(test: World, costs: Costs, start: Allocation, penalty: float) -> float:
    found = search(costs.world, "llmselector", costs=costs, start=start, penalty=penalty)
    return test.accuracy(found.allocation)


def inside(train: World, costs: Costs, start: Allocation, penalty: float, gamma: float = 0.1) -> Allocation:
    """LLMSelector with the penalty taken from every question's score, as exercise 7 of the lecture proposes.

    Every tie then goes to the cheapest model, however small the penalty; `search` takes it from the mean.
    """
    price = penalty * costs.mean / costs.mean.max()
    now, settled, slot = start, 0, 0
    while settled < train.slots:
        tried = [with_model(now, slot, k) for k in range(len(train.models))]
        scores = np.array(
            [
                ~train.to_blame(each, slot) + gamma * train.correct(each) - price[slot, k]
                for k, each in enumerate(tried)
            ]
        )
        best = tried[int(votes(scores).argmax())]
        settled = settled + 1 if best == now else 0
        now, slot = best, (slot + 1) % train.slots
    return now


def pool(seed: int) -> dict[str, float]:
    """What demonstrations 2 to 4 measure on this seed's pools."""
    values: dict[str, float] = {}
    for name in SYSTEMS:
        values |= _compared(name, seed)
    values |= _diagnosed(seed)
    values |= _blind(seed)
    values |= _diverse("DIV", DIV, "debate_swayed", seed)
    return values | _diverse("P1", P1, "debate", seed)


def _compared(name: str, seed: int) -> dict[str, float]:
    """Test accuracies of the searchers; random search gets as many evaluations as LLMSelector took."""
    scene = P1.draw(seed, get(name))
    values = {}
    for searcher in ("best_single", "llmselector", "exhaustive", "coordinate_greedy", "random"):
        params = {"samples": int(values[f"{name} evaluated"])} if searcher == "random" else {}
        found = search(scene.train, searcher, params, start=scene.start, rng=scene.rng)
        values[f"{name} {searcher}"] = scene.test.accuracy(found.allocation)
        if searcher == "llmselector":
            values[f"{name} evaluated"] = found.evaluated
    return values


def _diagnosed(seed: int) -> dict[str, float]:
    """Debate under diagnosers of falling accuracy: allocations evaluated, test accuracy."""
    values = {}
    for accuracy in ACCURACIES:
        scene = P1.draw(seed, get("debate"))
        given = {"diagnoser": accuracy}
        found = search(scene.train, "llmselector", given, start=scene.start, rng=scene.rng, budget=BUDGET)
        values[f"diagnoser {accuracy:g} evaluated"] = found.evaluated
        values[f"diagnoser {accuracy:g} accuracy"] = scene.test.accuracy(found.allocation)
    return values


def _blind(seed: int) -> dict[str, float]:
    """Self-refine whose critic finds its own model's mistakes 0.3 times as often."""
    scene = P1.with_latent(blind_to_own=0.3).draw(seed, get("self_refine"))
    counts = correct_counts(scene.train)
    generator, critic, _ = np.indices(counts.shape)
    best, same = _best(counts), _best(np.where(generator == critic, counts, -1))
    found = search(scene.train, "llmselector", start=scene.start, rng=scene.rng).allocation
    accuracy = scene.test.accuracy
    return {
        "blind separates": float(best[0] != best[1]),
        "blind gain": accuracy(best) - accuracy(same),
        "blind selector separates": float(found[0] != found[1]),
        "blind selector gain": accuracy(found) - accuracy(same),
    }


def _diverse(label: str, law: Pool, system: str, seed: int) -> dict[str, float]:
    """Debate: whether the best allocation wants several generating models, and what they bring."""
    scene = law.draw(seed, get(system))
    counts = correct_counts(scene.train)
    first, second, third, *_ = np.indices(counts.shape)
    best, same = _best(counts), _best(np.where((first == second) & (second == third), counts, -1))
    found = search(scene.train, "llmselector", start=scene.start, rng=scene.rng)
    greedy = search(scene.train, "coordinate_greedy", start=scene.start, rng=scene.rng)
    single = search(scene.train, "best_single").allocation
    accuracy = scene.test.accuracy
    return {
        f"{label} several": float(len(set(best[:3])) > 1),
        f"{label} gain": accuracy(best) - accuracy(same),
        f"{label} selector over single": accuracy(found.allocation) - accuracy(single),
        f"{label} greedy over single": accuracy(greedy.allocation) - accuracy(single),
        f"{label} evaluated": found.evaluated,
    }


def _best(counts: NDArray[np.int32]) -> Allocation:
    return tuple(int(k) for k in np.unravel_index(int(counts.argmax()), counts.shape))


def smallest_run() -> float:
    """Allocations that LLMSelector evaluates with 10 models in a debate if it starts at the only optimum."""
    system = get("debate")
    success = np.zeros((len(system.slots), 10, 1), dtype=np.bool_)
    success[:, 0] = True
    world = World(system, tuple(f"M{k}" for k in range(10)), success)
    return search(world, "llmselector", start=(0,) * len(system.slots)).evaluated


def all_allocations() -> int:
    """Allocations of 10 models in a debate, counted by evaluating them all."""
    law = dataclasses.replace(P1, models=10, train=64, test=1)
    return correct_counts(law.draw(0, get("debate")).train).size
