"""From a table of outcomes to an allocation: search on some questions, judge on others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsim.selection.costs import Costs, Point, cheaper_swaps, per_call, within_budget
from fastsim.selection.exhaustive import survey
from fastsim.selection.searchers import Found, search
from fastsim.selection.systems import System
from fastsim.selection.tables import Outcomes, split
from fastsim.selection.worlds import Allocation, World
from fastsim.stats import Interval, mean_interval, paired_difference
from fastsim.typed import NotNegative, Seed, Share, checked

__all__ = ["Choice", "Judged", "choose"]

MOST_FOR_FRONTIER = 10**8  # allocations; seconds

ASSUMED = (
    "in every module a model can do its part on just the questions that it answered right in the table",
    "wrong answers of one model are the same, those of two models differ",
    "a call costs in every module what the model's answer to the question cost",
)


@dataclass(frozen=True)
class Judged:
    """An allocation, on questions it was not chosen by.

    Attributes
    ----------
    label : str
    allocation : tuple of int
    train_accuracy : float
        On the questions it was chosen by: too high for what was chosen by it.
    accuracy, gain : Interval
        On the others; the gain is over the best single model, question by question.
    cost : float
        A question, on the others.
    """

    label: str
    allocation: Allocation
    train_accuracy: float
    accuracy: Interval
    gain: Interval
    cost: float


@dataclass(frozen=True, eq=False)
class Choice:
    """What `choose` found.

    Attributes
    ----------
    system : System
    models : tuple of str
    found : Found
        The search.
    rows : list of Judged
        Best single model, what the searcher found, and what was asked for beside.
    frontier : list of Judged
        The Pareto frontier of the questions searched on, judged on the others; cheapest first.
    singles : list of Judged
        Each model alone.
    cost_unit : str
    notes : tuple of str
        What was assumed, and how it was split.
    """

    system: System
    models: tuple[str, ...]
    found: Found
    rows: list[Judged]
    frontier: list[Judged]
    singles: list[Judged]
    cost_unit: str
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The same with names for indices, for JSON."""
        return {
            "system": self.system.name,
            "models": self.models,
            "cost_unit": self.cost_unit,
            "search": {
                "searcher": self.found.searcher,
                "evaluated": self.found.evaluated,
                "model_calls": self.found.model_calls,
                "diagnoses": self.found.diagnoses,
                "money": self.found.money,
                "exhausted": self.found.exhausted,
                "path": [
                    {"allocation": self._named(step.allocation), "evaluated": step.evaluated}
                    for step in self.found.path
                ],
            },
            "rows": [self._row(row) for row in self.rows],
            "frontier": [self._row(row) for row in self.frontier],
            "singles": [self._row(row) for row in self.singles],
            "notes": self.notes,
        }

    def _named(self, allocation: Allocation) -> dict[str, str]:
        return dict(zip(self.system.slot_names, (self.models[k] for k in allocation), strict=True))

    def _row(self, row: Judged) -> dict[str, Any]:
        plain = {"label": row.label, "allocation": self._named(row.allocation)}
        plain |= {"train_accuracy": row.train_accuracy, "cost": row.cost}
        for name in ("accuracy", "gain"):
            found: Interval = getattr(row, name)
            plain |= {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}
        return plain


@checked
def choose(
    system: System,
    table: Outcomes,
    *,
    searcher: str = "llmselector",
    params: Mapping[str, Any] | None = None,
    budget: float | None = None,
    penalty: NotNegative = 0.0,
    spend: float | None = None,
    loss: float | None = None,
    right_from: float | None = None,
    test_share: Share = 0.5,
    seed: Seed = 0,
) -> Choice:
    """Choose a model for every module of a system.

    Parameters
    ----------
    system : System
    table : Outcomes
        Scores and costs of the models, question by question; see `World.from_table` for what it is taken to
        say about modules.
    searcher, params, budget, penalty
        As in `fastsim.selection.searchers.search`; the budget counts evaluated allocations.
    spend : float, optional
        Also the most accurate allocation that costs at most this a question.
    loss : float, optional
        Also the allocation found, made cheaper by swaps that give up at most this accuracy.
    right_from : float, optional
        Scores from here on count as right; by default the middle of their range.
    test_share : float
        Share of the questions to judge on, in (0, 1); a table that says which is taken at its word.
    seed : int
        Root of all random streams.

    Raises
    ------
    InputError
        As the parts it is made of.
    """
    parts = split(table, test_share=test_share, seed=seed)
    train = World.from_table(system, parts.train, right_from)
    costs = Costs(train, per_call(train, money=parts.train.costs.T))
    found = search(train, searcher, params, costs=costs, budget=budget, penalty=penalty, rng=seed)
    judge = _Judge(train, parts.test, right_from)
    points, note = _frontier(system, parts.train, right_from)
    rows = [judge("best single model", judge.single), judge(searcher, found.allocation)]
    if loss is not None:
        swapped = cheaper_swaps(costs, found.allocation, loss)[-1].allocation
        rows.append(judge(f"{searcher}, cheaper for {loss:g}", swapped))
    if spend is not None:
        rows.append(judge(f"best within {spend:g}", within_budget(points, spend).allocation))
    singles = [judge(name, (k,) * train.slots) for k, name in enumerate(train.models)]
    frontier = [judge("frontier", point.allocation) for point in points]
    notes = (*parts.notes, *_rounding(table, right_from), *table.assumptions, *ASSUMED, *note)
    return Choice(system, train.models, found, rows, frontier, singles, table.cost_unit, notes)


class _Judge:
    """Accuracies on questions that nothing was chosen by, repeats of a question as one."""

    def __init__(self, train: World, table: Outcomes, right_from: float | None) -> None:
        self.train = train
        self.world = World.from_table(train.system, table, right_from)
        self.costs = Costs(self.world, per_call(self.world, money=table.costs.T))
        _, self.group = np.unique(table.question, return_inverse=True)
        self.single = max(
            ((k,) * train.slots for k in range(len(train.models))),
            key=lambda a: (train.accuracy(a), -a[0]),
        )
        self.reference = self.by_question(self.single)

    def by_question(self, allocation: Allocation) -> NDArray[np.float64]:
        """Share right of each question's repeats."""
        return np.bincount(self.group, self.world.correct(allocation)) / np.bincount(self.group)

    def __call__(self, label: str, allocation: Allocation) -> Judged:
        right = self.by_question(allocation)
        return Judged(
            label,
            allocation,
            self.train.accuracy(allocation),
            mean_interval(right),
            paired_difference(right, self.reference),
            self.costs.of(allocation),
        )


def _frontier(
    system: System, table: Outcomes, right_from: float | None
) -> tuple[list[Point], tuple[str, ...]]:
    """The exact frontier, of as many models as can all be tried together."""
    slots, models = len(system.slots), len(table.models)
    most = models
    while most > 1 and most**slots > MOST_FOR_FRONTIER:
        most -= 1
    kept = _promising(table, most)
    some = table.only([table.models[k] for k in kept])
    world = World.from_table(system, some, right_from)
    points = survey(world, Costs(world, per_call(world, money=some.costs.T)), top=1).frontier
    whole = [Point(tuple(kept[k] for k in point.allocation), point.cost, point.accuracy) for point in points]
    if most == models:
        return whole, ()
    return whole, (
        f"the frontier is that of {most} of the {models} models: all that none beats in cost and accuracy, "
        "then the most accurate",
    )


def _promising(table: Outcomes, most: int) -> Sequence[int]:
    """Models to keep: those on the frontier of single models first, then by accuracy; in their order."""
    accuracy, cost = table.scores.mean(axis=0), table.costs.mean(axis=0)
    beaten = [
        bool(
            (
                (accuracy >= accuracy[k]) & (cost <= cost[k]) & ((accuracy > accuracy[k]) | (cost < cost[k]))
            ).any()
        )
        for k in range(len(table.models))
    ]
    return sorted(sorted(range(len(beaten)), key=lambda k: (beaten[k], -accuracy[k]))[:most])


def _rounding(table: Outcomes, right_from: float | None) -> tuple[str, ...]:
    low, high = table.score_range
    if np.isin(table.scores, (low, high)).all():
        return ()
    least = (low + high) / 2.0 if right_from is None else right_from
    return (f"scores of {least:g} and above count as right",)
