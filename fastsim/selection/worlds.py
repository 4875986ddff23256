"""Worlds: for every question, module and model, whether that model can do its part; and what follows."""

from __future__ import annotations

import dataclasses
import operator
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsim.errors import InputError
from fastsim.selection.roles import Answer
from fastsim.selection.systems import System
from fastsim.selection.tables import Outcomes

__all__ = ["Allocation", "Coupling", "World"]

Allocation = tuple[int, ...]
Bools = NDArray[np.bool_]

KEPT_ANSWERS = 20_000  # of 200 to 2,000 questions each: tens of MB


@dataclass(frozen=True, eq=False)
class Coupling:
    """Where two modules do differently if the same model does both, as a critic blind to its own mistakes.

    Attributes
    ----------
    slot, partner : int
        Slot of the module that does differently, and the other one, before it.
    success : bool[K, Q]
        What takes the place of the world's `success` of the slot then.
    """

    slot: int
    partner: int
    success: Bools


@dataclass(frozen=True, eq=False)
class World:
    """A system, models, and what happens on every question.

    Attributes
    ----------
    system : System
    models : tuple of str
        Names of the K models.
    success : bool[L, K, Q]
        Whether model k can do the part of slot l on question q.
    couplings : tuple of Coupling
        At most one a slot.

    Raises
    ------
    InputError
        For shapes that do not fit, no questions, models named twice, or couplings that do not fit.
    """

    system: System
    models: tuple[str, ...]
    success: Bools
    couplings: tuple[Coupling, ...] = ()
    _answers: OrderedDict[tuple[int, Any], Answer] = field(
        default_factory=OrderedDict, init=False, repr=False
    )

    def __post_init__(self) -> None:
        slots, models = len(self.system.slots), len(self.models)
        shape = self.success.shape
        if len(shape) != 3 or shape[:2] != (slots, models):
            raise InputError(
                f"success has shape {shape}; system {self.system.name} with {models} models needs "
                f"({slots}, {models}, questions)"
            )
        if self.success.dtype != np.bool_:
            raise InputError(f"success holds {self.success.dtype}; it must hold true and false")
        if not models or not shape[2]:
            raise InputError(f"a world needs models and questions; this one has {models} and {shape[2]}")
        twice = [name for name in self.models if self.models.count(name) > 1]
        if twice:
            raise InputError(f"model {twice[0]!r} is there twice")
        for coupling in self.couplings:
            self._check(coupling)

    def _check(self, coupling: Coupling) -> None:
        slots = len(self.system.slots)
        if not 0 <= coupling.partner < coupling.slot < slots:
            raise InputError(
                f"coupling of slot {coupling.slot} with {coupling.partner}: the partner must be an earlier "
                f"slot, of 0 to {slots - 1}"
            )
        if coupling.success.shape != self.success.shape[1:]:
            raise InputError(
                f"coupling of slot {coupling.slot}: its shape is {coupling.success.shape}; it must be "
                f"{self.success.shape[1:]}"
            )
        if sum(other.slot == coupling.slot for other in self.couplings) > 1:
            raise InputError(f"slot {coupling.slot} has more than one coupling; one is allowed")

    @classmethod
    def from_table(cls, system: System, table: Outcomes, right_from: float | None = None) -> World:
        """A world from one table of who answered which question right.

        It assumes that a model can do its part in any module on exactly those questions that it answered
        right: a step works, a critic sees the mistake, a debater knows the right answer when it is offered,
        a refiner mends. Wrong answers of one model are the same, those of two models differ. Generators then
        are as they were measured, the others are an assumption; no critic finds its own model's mistakes.

        Parameters
        ----------
        system : System
        table : Outcomes
        right_from : float, optional
            Scores from here on count as right; by default the middle of the table's range.

        Raises
        ------
        InputError
            If `right_from` is not within the range of the scores.
        """
        low, high = table.score_range
        least = (low + high) / 2.0 if right_from is None else right_from
        if not low < least <= high:
            raise InputError(f"right_from is {least:g}; scores of {table.name} lie in [{low:g}, {high:g}]")
        right = np.ascontiguousarray((table.scores >= least).T)
        return cls(system, table.models, np.repeat(right[None], len(system.slots), axis=0))

    @property
    def slots(self) -> int:
        """L, modules that a model does."""
        return self.success.shape[0]

    @property
    def questions(self) -> int:
        """Q."""
        return self.success.shape[2]

    @cached_property
    def reads(self) -> tuple[tuple[int, ...], ...]:
        """For each node, the slots whose models its answer depends on; its own and partners included."""
        partner = {each.slot: each.partner for each in self.couplings}
        reads: list[set[int]] = []
        for node in self.system.nodes:
            own = {slot for slot in (node.slot, partner.get(node.slot, -1)) if slot >= 0}
            reads.append(own.union(*(reads[i] for i in node.inputs)))
        return tuple(tuple(sorted(slots)) for slots in reads)

    @cached_property
    def _models(self) -> list[Callable[[Allocation], Any]]:
        """For each node, what takes the models of those slots from an allocation."""
        return [operator.itemgetter(*slots) for slots in self.reads]

    def part(self, questions: Any) -> World:
        """The world of some of the questions: indices, a slice or a mask."""
        couplings = tuple(
            dataclasses.replace(each, success=np.ascontiguousarray(each.success[:, questions]))
            for each in self.couplings
        )
        return World(self.system, self.models, np.ascontiguousarray(self.success[:, :, questions]), couplings)

    def named(self, allocation: Allocation) -> dict[str, str]:
        """An allocation by names: module -> model."""
        return {module: self.models[k] for module, k in zip(self.system.slot_names, allocation, strict=True)}

    def allocation(self, models: Sequence[int]) -> Allocation:
        """Check an allocation: a model for every slot.

        Raises
        ------
        InputError
            For a wrong length or a model that does not exist.
        """
        checked = tuple(int(k) for k in models)
        if len(checked) != self.slots:
            raise InputError(f"allocation {checked} has {len(checked)} models; it needs {self.slots}")
        for k in checked:
            if not 0 <= k < len(self.models):
                raise InputError(
                    f"allocation {checked}: there is no model {k}, only 0 to {len(self.models) - 1}"
                )
        return checked

    def can(self, allocation: Allocation, slot: int) -> Bools:
        """Where the model of a slot can do its part, bool[Q]."""
        k = allocation[slot]
        for coupling in self.couplings:
            if coupling.slot == slot and allocation[coupling.partner] == k:
                return coupling.success[k]
        return self.success[slot, k]

    def correct(self, allocation: Allocation) -> Bools:
        """Where the final answer is right, bool[Q]."""
        return self._answer(allocation, len(self.system.nodes) - 1).right

    def accuracy(self, allocation: Allocation) -> float:
        """Share of the questions whose final answer is right."""
        return float(self.correct(allocation).mean())

    def to_blame(self, allocation: Allocation, slot: int) -> Bools:
        """Where a module is to be blamed for the final answer, bool[Q]; never where that is right."""
        at = self.system.slots[slot]
        node = self.system.nodes[at]
        inputs = [self._answer(allocation, i) for i in node.inputs]
        blamed = node.role.blame(self.can(allocation, slot), self._answer(allocation, at), inputs)
        return blamed & ~self.correct(allocation)

    def ran(self, allocation: Allocation, slot: int) -> Bools | None:
        """Where a module is called, bool[Q]; None if everywhere."""
        node = self.system.nodes[self.system.slots[slot]]
        if node.role.runs is None:
            return None
        return node.role.runs([self._answer(allocation, i) for i in node.inputs])

    def _answer(self, allocation: Allocation, at: int) -> Answer:
        """What a node answers; kept, as it depends on the models of few slots only."""
        node = self.system.nodes[at]
        kept = self._answers
        key = (at, self._models[at](allocation))
        found = kept.get(key)
        if found is None:
            inputs = [self._answer(allocation, i) for i in node.inputs]
            success = self.can(allocation, node.slot) if node.slot >= 0 else None
            found = kept[key] = node.role.answer(success, inputs, node.slot, _Held(allocation))
            if len(kept) > KEPT_ANSWERS:
                kept.popitem(last=False)
        return found


@dataclass(frozen=True)
class _Held:
    """Comparisons of slots under one allocation, for `roles`."""

    allocation: Allocation

    def same(self, a: int, b: int) -> Any:
        return np.bool_(self.allocation[a] == self.allocation[b])

    def first(self, a: int, b: int) -> Any:
        return np.bool_((self.allocation[a], a) < (self.allocation[b], b))
