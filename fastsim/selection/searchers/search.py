"""One search: what a searcher may ask, and the account of what it asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsim.errors import InputError
from fastsim.rng import generator
from fastsim.selection.costs import Costs
from fastsim.selection.searchers.registry import get
from fastsim.selection.worlds import Allocation, World
from fastsim.typed import NotNegative, check, checked

__all__ = ["Found", "Search", "Step", "search"]

Bools = NDArray[np.bool_]

KEPT_BYTES = 100_000_000  # of judged answers


@dataclass(frozen=True)
class Step:
    """A move of a search.

    Attributes
    ----------
    allocation : tuple of int
        Where it moved.
    evaluated : float
        Allocations evaluated until then.
    """

    allocation: Allocation
    evaluated: float


@dataclass(frozen=True)
class Found:
    """What a search found, and what it took.

    Attributes
    ----------
    searcher : str
    allocation : tuple of int
        The last of the path.
    accuracy, cost : float
        Of that allocation, on all the questions searched on; cost a question, 0 without prices.
    path : tuple of Step
        Every move, the start included where there is one; the same place again where a round confirmed it.
    evaluated : float
        Allocations evaluated on all questions; on a part of them they count as that part. The same one counts
        every time.
    model_calls : int
        Calls of models for that, those that were really made.
    diagnoses : int
        Judgements asked of a diagnoser, one a wrong final answer.
    money : float
        Price of the calls of models.
    exhausted : bool
        Whether the budget, or a limit of the searcher's own, ended it.
    """

    searcher: str
    allocation: Allocation
    accuracy: float
    cost: float
    path: tuple[Step, ...]
    evaluated: float
    model_calls: int
    diagnoses: int
    money: float
    exhausted: bool


class BudgetSpent(Exception):
    """Nothing more may be evaluated; `search` ends there."""


class Search:
    """The world as a searcher meets it.

    Attributes
    ----------
    slots, models, questions : int
    start : tuple of int
        Where to start.
    budget : float
        Allocations that may be evaluated; infinite without a budget.
    penalty, dearest : float
        Accuracy that a call at the dearest mean price is worth, and that price; see `objective`.
    rng : numpy.random.Generator
        For the searcher's draws, the diagnoser's noise included.
    """

    def __init__(
        self,
        world: World,
        *,
        costs: Costs | None,
        budget: float,
        start: Allocation,
        penalty: float,
        rng: np.random.Generator,
    ) -> None:
        self.world, self.costs = world, costs
        self.slots, self.models, self.questions = world.success.shape
        self.start, self.budget, self.penalty, self.rng = start, budget, penalty, rng
        self.path: list[Step] = []
        self.model_calls, self.diagnoses, self.money = 0, 0, 0.0
        self._answered = 0  # questions, over all evaluations
        self._kept: dict[Allocation, tuple[float, int, float]] = {}
        self._rows: dict[Allocation, tuple[Bools, Bools]] = {}
        self._calls = Costs.of_calls(world)
        self.dearest = float(costs.mean.max()) if costs else 0.0

    @property
    def evaluated(self) -> float:
        """Allocations evaluated so far, those on a part of the questions as that part."""
        return self._answered / self.questions

    def fits(self, allocations: float) -> bool:
        """Whether so many more evaluations are within the budget."""
        return self.evaluated + allocations <= self.budget + 1e-9

    def evaluate(self, allocation: Allocation, questions: Any = None) -> Bools:
        """Run an allocation, and charge for it.

        Parameters
        ----------
        allocation : tuple of int
        questions : index array, optional
            Which questions to run; all by default.

        Returns
        -------
        bool[Q] or bool of the questions asked
            Where the final answer is right.
        """
        correct = self.world.correct(allocation)
        if questions is None:
            _, calls, money = self._price(allocation)
            self.charge(1.0, calls, money)
            return correct
        some = np.asarray(questions)
        self._pay(len(some))
        self.model_calls += round(self._on(self._calls, allocation, some))
        self.money += self._on(self.costs, allocation, some) if self.costs else 0.0
        return correct[some]

    def objective(self, allocation: Allocation) -> float:
        """Evaluate: accuracy less ``penalty x cost / dearest call``; the penalty follows the mean."""
        accuracy = float(self.evaluate(allocation).mean())
        if not self.penalty:
            return accuracy
        return accuracy - self.penalty * self._price(allocation)[0] / self.dearest

    def handicap(self, slot: int) -> NDArray[np.float64]:
        """What the penalty takes from each model at a slot: ``penalty x price / dearest``, float64[K]."""
        if self.costs is None or not self.penalty:
            return np.zeros(self.models)
        return self.penalty * self.costs.mean[slot] / self.dearest

    def toll(self, allocation: Allocation, questions: NDArray[Any]) -> float:
        """What the penalty takes from an allocation, by its cost on some questions."""
        if self.costs is None or not self.penalty:
            return 0.0
        return self.penalty * self._on(self.costs, allocation, questions) / len(questions) / self.dearest

    def blamed(self, allocation: Allocation, slot: int, accuracy: float, questions: Any) -> Bools:
        """Ask the diagnoser whether a slot is to be blamed for the final answers of an evaluated allocation.

        It is right with probability `accuracy`, afresh at every question and every time; it never blames
        anybody for a right final answer, which takes no judgement.
        """
        truth = self.world.to_blame(allocation, slot)[questions]
        return self._judged(truth, ~self.world.correct(allocation)[questions], accuracy)

    def evaluate_models(self, now: Allocation, slot: int, *, again: bool = True) -> Bools:
        """Run an allocation with every model at a slot, and charge for all, or for all but the present one.

        Parameters
        ----------
        now : tuple of int
        slot : int
        again : bool
            Whether the present allocation is run again.

        Returns
        -------
        bool[K, Q]
            Where the final answers are right.
        """
        prices = [self._price(each) for each in self._changed(now, slot) if again or each != now]
        self.charge(len(prices), sum(calls for _, calls, _ in prices), sum(money for *_, money in prices))
        return self._row(now, slot)[0]

    def blamed_models(self, now: Allocation, slot: int, accuracy: float) -> Bools:
        """As `blamed`, for every model at the slot and all questions: bool[K, Q]."""
        correct, truth = self._row(now, slot)
        return self._judged(truth, ~correct, accuracy)

    def _judged(self, truth: Bools, wrong: Bools, accuracy: float) -> Bools:
        self.diagnoses += int(np.count_nonzero(wrong))
        if accuracy >= 1.0:
            return truth
        return (truth ^ (self.rng.random(truth.shape) >= accuracy)) & wrong

    def _row(self, now: Allocation, slot: int) -> tuple[Bools, Bools]:
        """Right answers and blame with every model at a slot, bool[K, Q]; kept."""
        key = (*now[:slot], -1, *now[slot + 1 :])
        found = self._rows.get(key)
        if found is None:
            changed = self._changed(now, slot)
            correct = np.array([self.world.correct(each) for each in changed])
            found = correct, np.array([self.world.to_blame(each, slot) for each in changed])
            self._rows[key] = found
            if len(self._rows) * 2 * correct.size > KEPT_BYTES:
                self._rows.pop(next(iter(self._rows)))
        return found

    def _changed(self, now: Allocation, slot: int) -> list[Allocation]:
        return [(*now[:slot], k, *now[slot + 1 :]) for k in range(self.models)]

    def move(self, allocation: Allocation) -> None:
        """Tell where the search is now: the last place is the result."""
        self.path.append(Step(allocation, self.evaluated))

    def charge(self, allocations: float, calls: int, money: float) -> None:
        """Account for evaluations."""
        self._pay(round(allocations * self.questions))
        self.model_calls += calls
        self.money += money

    def _pay(self, questions: int) -> None:
        if not self.fits(questions / self.questions):
            raise BudgetSpent
        self._answered += questions

    def _price(self, allocation: Allocation) -> tuple[float, int, float]:
        """Cost a question; calls and money over all questions. Kept."""
        found = self._kept.get(allocation)
        if found is None:
            cost = self.costs.of(allocation) if self.costs else 0.0
            calls = round(self._calls.of(allocation) * self.questions)
            found = self._kept[allocation] = cost, calls, cost * self.questions
        return found

    def _on(self, costs: Costs, allocation: Allocation, questions: NDArray[Any]) -> float:
        total = 0.0
        for slot, k in enumerate(allocation):
            ran, price = self.world.ran(allocation, slot), costs.call[slot, k][questions]
            total += float((price if ran is None else price * ran[questions]).sum())
        return total

    def found(self, name: str, *, exhausted: bool) -> Found:
        """The account, closed."""
        last = self.path[-1].allocation if self.path else self.start
        return Found(
            name,
            last,
            self.world.accuracy(last),
            self._price(last)[0],
            tuple(self.path),
            self.evaluated,
            self.model_calls,
            self.diagnoses,
            self.money,
            exhausted,
        )


@checked
def search(
    world: World,
    searcher: str,
    params: Mapping[str, Any] | None = None,
    *,
    costs: Costs | None = None,
    budget: float | None = None,
    start: Allocation | None = None,
    penalty: NotNegative = 0.0,
    rng: np.random.Generator | int = 0,
) -> Found:
    """Search for the allocation that answers most questions.

    Parameters
    ----------
    world : World
        The questions to search on.
    searcher : str
        A name of the registry.
    params : mapping, optional
        The searcher's parameters.
    costs : Costs, optional
        Prices; without them nothing costs anything.
    budget : float, optional
        Allocations that may be evaluated.
    start : tuple of int, optional
        By default drawn uniformly.
    penalty : float
        Accuracy that the dearest mean price of a call is worth, 0 or more.
    rng : numpy.random.Generator or int
        Of draws and noise; a number seeds the stream "selection".

    Raises
    ------
    InputError
        For a searcher or parameters that do not exist, a start that does not fit, a budget below 1, or a
        penalty without prices.
    """
    entry = get(searcher)
    spec = check(entry.params, dict(params or {}), f"searcher {searcher}")
    if budget is not None and not budget >= 1:
        raise InputError(f"budget is {budget:g} evaluated allocations; it must be at least 1")
    if costs is not None and costs.world is not world:
        raise InputError("costs are those of another world; make them of the world that is searched")
    if not (penalty >= 0.0 and np.isfinite(penalty)):
        raise InputError(f"penalty is {penalty:g}; it must be 0 or more, and finite")
    if penalty and (costs is None or not costs.mean.any()):
        raise InputError(f"penalty is {penalty:g}, but no call has a price")
    draws = generator(rng, 0, "selection") if isinstance(rng, int) else rng
    slots, models, _ = world.success.shape
    begin = world.allocation(start if start is not None else draws.integers(0, models, slots).tolist())
    limit = float("inf") if budget is None else float(budget)
    asked = Search(world, costs=costs, budget=limit, start=begin, penalty=penalty, rng=draws)
    try:
        entry.run(asked, spec)
    except BudgetSpent:
        return asked.found(searcher, exhausted=True)
    return asked.found(searcher, exhausted=False)
