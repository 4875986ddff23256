"""What an allocation costs: the calls that are really made, priced by call and by token; and what to pay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsim.errors import InputError, nearest
from fastsim.selection.worlds import Allocation, World

__all__ = ["Costs", "Point", "Swap", "cheaper_swaps", "frontier", "per_call", "price_list", "within_budget"]

Floats = NDArray[np.float64]
SAME = 1e-9  # costs that differ by less, relatively, are the same: they are sums in another order


def per_call(
    world: World,
    call: ArrayLike = 0.0,
    *,
    money: ArrayLike = 0.0,
    input_price: ArrayLike = 0.0,
    output_price: ArrayLike = 0.0,
    input_tok: ArrayLike = 0.0,
    output_tok: ArrayLike = 0.0,
) -> Floats:
    """Price of one call of every model in every module on every question.

    Parameters
    ----------
    world : World
    call : array_like, shape (K,)
        A call, whatever its length.
    money : array_like, any shape that broadcasts to (L, K, Q)
        A call as it was billed, instead of prices or beside them.
    input_price, output_price : array_like, shape (K,)
        A token.
    input_tok, output_tok : array_like, any shape that broadcasts to (L, K, Q)
        Tokens of each call.

    Returns
    -------
    float64[L, K, Q]
        In the unit of the prices; read only.

    Raises
    ------
    InputError
        For prices or tokens that are negative, not finite, or of a shape that does not fit.
    """
    shape = world.success.shape
    models = {"call": call, "input_price": input_price, "output_price": output_price}
    prices = {name: _fitting(name, value, (shape[1],))[None, :, None] for name, value in models.items()}
    tokens = {
        name: _fitting(name, value, shape)
        for name, value in (("input_tok", input_tok), ("output_tok", output_tok), ("money", money))
    }
    total = prices["call"] + tokens["money"] + prices["input_price"] * tokens["input_tok"]
    return np.broadcast_to(total + prices["output_price"] * tokens["output_tok"], shape)


def _fitting(name: str, value: ArrayLike, shape: tuple[int, ...]) -> Floats:
    given = np.asarray(value, dtype=np.float64)
    try:
        fitted = np.broadcast_to(given, shape)
    except ValueError:
        raise InputError(f"{name} has shape {given.shape}; it must fit {shape}") from None
    bad = given[~((given >= 0.0) & np.isfinite(given))]
    if bad.size:
        raise InputError(f"{name} holds {bad.flat[0]:g}; it must be 0 or more, and finite")
    return fitted


def price_list(world: World, prices: Mapping[str, float]) -> Floats:
    """Prices of the world's models, in their order, out of those of many.

    Raises
    ------
    InputError
        If a model has no price.
    """
    for name in world.models:
        if name not in prices:
            raise InputError(f"model {name!r} has no price; {nearest(name, prices)}")
    return np.array([prices[name] for name in world.models], dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Costs:
    """Costs of the allocations of a world.

    Attributes
    ----------
    world : World
    call : float64[L, K, Q]
        Price of a call, as `per_call` gives it; ones count calls.
    """

    world: World
    call: Floats

    @classmethod
    def of_calls(cls, world: World, price: ArrayLike = 1.0) -> Costs:
        """Every call of a model has the same price: float64[K], or one for all."""
        return cls(world, per_call(world, price))

    @cached_property
    def mean(self) -> Floats:
        """Mean price of a call, float64[L, K]."""
        return self.call.mean(axis=2)

    def of(self, allocation: Allocation) -> float:
        """Mean cost of a question; a module that is not called costs nothing."""
        return float(sum(self._of_slot(allocation, slot) for slot in range(self.world.slots)))

    def _of_slot(self, allocation: Allocation, slot: int) -> float:
        ran = self.world.ran(allocation, slot)
        k = allocation[slot]
        if ran is None:
            return float(self.mean[slot, k])
        return float((self.call[slot, k] * ran).mean())

    def parts(self) -> list[tuple[tuple[int, ...], Floats]]:
        """Cost of each slot as a table over the slots that it depends on.

        Returns
        -------
        list of (slots, float64[K, ..., K])
            Slots in rising order, one axis each; the cost of an allocation is the sum over the list.
        """
        return [self._part(slot) for slot in range(self.world.slots)]

    def _part(self, slot: int) -> tuple[tuple[int, ...], Floats]:
        world = self.world
        node = world.system.nodes[world.system.slots[slot]]
        if node.role.runs is None:
            return (slot,), self.mean[slot]
        above = tuple(sorted({s for i in node.inputs for s in world.reads[i]}))
        models = len(world.models)
        table = np.empty((models ** len(above), models))
        allocation = [0] * world.slots
        for row, chosen in enumerate(np.ndindex(*[models] * len(above))):
            for s, k in zip(above, chosen, strict=True):
                allocation[s] = k
            ran = world.ran(tuple(allocation), slot)
            assert ran is not None
            table[row] = (self.call[slot] * ran).mean(axis=1)
        return (*above, slot), table.reshape([models] * (len(above) + 1))

    def table(self) -> Floats:
        """Cost of every allocation, float64[K, ..., K] with an axis a slot."""
        total = np.zeros([len(self.world.models)] * self.world.slots)
        for slots, part in self.parts():
            total += spread(part, slots, self.world.slots)
        return total


def spread(part: Floats, slots: Sequence[int], total: int) -> Floats:
    """Give a table over some slots an axis for every slot, of length 1 where it does not depend on it."""
    shape = [1] * total
    for slot, size in zip(slots, part.shape, strict=True):
        shape[slot] = size
    return part.reshape(shape)


@dataclass(frozen=True)
class Point:
    """An allocation that no other beats in both cost and accuracy.

    Attributes
    ----------
    allocation : tuple of int
    cost : float
        A question.
    accuracy : float
    """

    allocation: Allocation
    cost: float
    accuracy: float


def frontier(points: Sequence[Point]) -> list[Point]:
    """The Pareto frontier: cheaper ones first, each more accurate than all before it.

    Of allocations that cost the same (to a part in 1e9) and are as accurate, the first in order stays.
    """
    kept: list[Point] = []
    for point in sorted(points, key=lambda point: (point.cost, -point.accuracy, point.allocation)):
        if kept and point.accuracy <= kept[-1].accuracy:
            continue
        if kept and point.cost - kept[-1].cost <= SAME * point.cost:
            kept.pop()
        kept.append(point)
    return kept


def within_budget(points: Sequence[Point], budget: float) -> Point:
    """The most accurate allocation that costs at most `budget` a question.

    Parameters
    ----------
    points : sequence of Point
        A frontier.
    budget : float

    Raises
    ------
    InputError
        If none is that cheap.
    """
    affordable = [point for point in points if point.cost <= budget * (1.0 + SAME)]
    if not affordable:
        cheapest = min(point.cost for point in points)
        raise InputError(f"{budget:g} a question is too little; the cheapest allocation costs {cheapest:g}")
    return max(affordable, key=lambda point: (point.accuracy, -point.cost))


@dataclass(frozen=True)
class Swap:
    """A step of `cheaper_swaps`: the allocation after it."""

    allocation: Allocation
    cost: float
    accuracy: float


def cheaper_swaps(costs: Costs, start: Allocation, loss: float) -> list[Swap]:
    """Make an allocation cheaper, one model at a time.

    The swap that saves most is made, among those that leave the accuracy on the world's questions at
    ``accuracy(start) - loss`` or above: losses do not add up.

    Parameters
    ----------
    costs : Costs
    start : Allocation
    loss : float
        Accuracy that may be given up, 0 or more.

    Returns
    -------
    list of Swap
        The start, then every step.

    Raises
    ------
    InputError
        For a negative loss or an allocation that does not fit.
    """
    if not loss >= 0.0:
        raise InputError(f"loss is {loss:g}; it must be 0 or more")
    world = costs.world
    now = world.allocation(start)
    path = [Swap(now, costs.of(now), world.accuracy(now))]
    floor = path[0].accuracy - loss - 1e-12
    while True:
        swaps = [_judge(costs, changed) for changed in neighbours(now, len(world.models))]
        cheaper = [s for s in swaps if s.cost < path[-1].cost * (1.0 - SAME) and s.accuracy >= floor]
        if not cheaper:
            return path
        path.append(min(cheaper, key=lambda swap: (swap.cost, -swap.accuracy)))
        now = path[-1].allocation


def _judge(costs: Costs, allocation: Allocation) -> Swap:
    return Swap(allocation, costs.of(allocation), costs.world.accuracy(allocation))


def neighbours(allocation: Allocation, models: int) -> list[Allocation]:
    """All allocations that differ in one slot, slot by slot and model by model."""
    return [
        (*allocation[:slot], k, *allocation[slot + 1 :])
        for slot in range(len(allocation))
        for k in range(models)
        if k != allocation[slot]
    ]
