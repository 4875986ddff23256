"""Which models each question calls, in order, and what that costs and gives: the face to the fleet."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fastsim.errors import InputError
from fastsim.selection.tables import Floats, Ints, Outcomes

NO_CALL = -1


@dataclass(frozen=True, eq=False)
class Routed:
    """Calls of n questions over at most m stages. A router has one stage, a cascade several.

    Attributes
    ----------
    models : tuple of str
        K names.
    calls : int64[n, m]
        Index of the model called at each stage, `NO_CALL` after the accepted answer.
    score : float64[n]
        Score of the accepted answer, which is the last call's.
    cost : float64[n]
        Of all calls made, in the unit of the table.
    """

    models: tuple[str, ...]
    calls: Ints
    score: Floats
    cost: Floats

    @property
    def answer(self) -> Ints:
        """int64[n]: index of the model whose answer was accepted."""
        return np.take_along_axis(self.calls, self.stages[:, None] - 1, axis=1)[:, 0]

    @property
    def stages(self) -> Ints:
        """int64[n]: calls each question makes, at least 1."""
        return (self.calls != NO_CALL).sum(axis=1)

    @property
    def loads(self) -> Floats:
        """float64[K]: mean calls of each model per question, so arrivals at its cluster per question.

        Source: lambda_m = lambda E[calls of m], the traffic equations of a feed-forward network.
        """
        made = self.calls[self.calls != NO_CALL]
        return np.bincount(made, minlength=len(self.models)) / len(self.calls)


def evaluate(table: Outcomes, calls: Ints) -> Routed:
    """Look up what calls cost and what the last one scores.

    Parameters
    ----------
    table : Outcomes
        n questions, K models.
    calls : int64[n] or int64[n, m]
        Indices of models; `NO_CALL` only after the last call of a question.

    Raises
    ------
    InputError
        For a shape that does not fit, or a question that calls no model, or one that does not exist.
    """
    calls = np.asarray(calls, dtype=np.int64)
    calls = calls[:, None] if calls.ndim == 1 else calls
    if calls.ndim != 2 or len(calls) != table.size:
        raise InputError(f"calls has the shape {calls.shape}; it must have {table.size} rows")
    made = calls != NO_CALL
    if (calls[made] < 0).any() or (calls[made] >= len(table.models)).any():
        raise InputError(f"calls holds a model that is not there; it must be 0 to {len(table.models) - 1}")
    if not made[:, 0].all() or (made[:, 1:] & ~made[:, :-1]).any():
        raise InputError("calls must name a model at the first stage, and none after a stage without one")
    costs = np.take_along_axis(table.costs, np.where(made, calls, 0), axis=1)
    last = np.take_along_axis(calls, made.sum(axis=1)[:, None] - 1, axis=1)
    score = np.take_along_axis(table.scores, last, axis=1)[:, 0]
    return Routed(table.models, calls, score, (costs * made).sum(axis=1))
