"""What became of the calls of a plan, and the requests they are to the clusters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fastsim.cluster.simulate import Result as ClusterResult
from fastsim.cluster.stepwise import Stepwise
from fastsim.fleet.plan import Plan
from fastsim.selection.routed import NO_CALL
from fastsim.selection.tables import Floats, Ints
from fastsim.workloads import Workload

Bools = NDArray[np.bool_]


class Serving(Protocol):
    """Clusters of the models; requests are calls, named by their questions and stages."""

    def serve(self, model: int, workload: Workload, question: Ints, stage: Ints) -> ClusterResult:
        """Simulate a model's cluster."""
        ...

    def begin(self, model: int, workload: Workload, question: Ints, stage: Ints) -> Stepwise:
        """The same, one step after the other."""
        ...


@dataclass
class Trace:
    """What became of every call, each array [n, S].

    Attributes
    ----------
    made : bool
        The call was made: it reached its cluster and was not refused.
    refused : bool
        It reached its cluster, whose router (or the limit in front of it) refused it.
    ready_s : float64
        When all it waits for was there; NaN if that never came.
    first_s, done_s : float64
        Its first and last token. A stage without a call is done when it is ready.
    replica, hit_tok : int64
        -1 and 0 where no call was made.
    """

    made: Bools
    refused: Bools
    ready_s: Floats
    first_s: Floats
    done_s: Floats
    replica: Ints
    hit_tok: Ints


def unplayed(plan: Plan) -> Trace:
    """Nothing has happened yet."""
    shape = plan.calls.shape
    nowhere, nothing = np.full(shape, -1, np.int64), np.zeros(shape, np.int64)
    never = [np.full(shape, np.nan) for _ in range(3)]
    no = [np.zeros(shape, bool) for _ in range(2)]
    return Trace(no[0], no[1], never[0], never[1], never[2], nowhere, nothing)


def follow(plan: Plan, arrival_s: Floats, trace: Trace) -> None:
    """Carry ends of calls on to what waits for them, stage by stage."""
    lost = np.zeros(plan.calls.shape, bool)  # behind a call that was refused
    for stage, inputs in enumerate(plan.inputs):
        start_s = arrival_s
        if inputs:
            ends = [trace.done_s[:, i] + plan.after_s[i] * trace.made[:, i] for i in inputs]
            start_s = np.maximum.reduce(ends)
            lost[:, stage] = np.logical_or.reduce([lost[:, i] | trace.refused[:, i] for i in inputs])
        trace.ready_s[:, stage] = start_s
        called = (plan.calls[:, stage] != NO_CALL) & ~lost[:, stage]
        trace.refused[:, stage] &= called
        trace.made[:, stage] = called & ~trace.refused[:, stage]
        passed = ~called | trace.refused[:, stage] if plan.keeps else plan.calls[:, stage] == NO_CALL
        trace.done_s[passed, stage] = start_s[passed]
        if not plan.keeps:
            trace.done_s[lost[:, stage] | trace.refused[:, stage], stage] = np.nan


def note(trace: Trace, question: Ints, stage: Ints, result: ClusterResult) -> None:
    """Write down what a cluster did with the calls that reached it."""
    columns = result.columns
    trace.refused[question, stage] = columns["replica"] < 0
    trace.done_s[question, stage] = columns["done_s"]
    trace.first_s[question, stage] = columns["first_token_s"]
    trace.replica[question, stage] = columns["replica"]
    trace.hit_tok[question, stage] = columns["hit_tok"]


# --- prompts ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Symbols:
    """A prompt is the context, the question itself, then what the call reads beside it.

    Attributes
    ----------
    of_call : int64[n, S, 2]
        Symbols of context and question; -1 where there is none.
    tok : int64[symbols]
    """

    of_call: Ints
    tok: Ints

    @classmethod
    def of(cls, plan: Plan) -> Symbols:
        """The symbols of a plan's prompts."""
        context_tok = np.minimum(plan.context_tok, plan.shared_tok)
        rest_tok = plan.shared_tok - context_tok
        who = np.stack(np.broadcast_arrays(-1 - plan.context[:, None], plan.question[:, None]), axis=-1)
        who = np.broadcast_to(who, (*context_tok.shape, 2))
        tok = np.stack((context_tok, rest_tok), axis=-1)
        pairs, symbol = np.unique(np.stack((who.ravel(), tok.ravel()), axis=1), axis=0, return_inverse=True)
        of_call = np.where(tok > 0, symbol.reshape(tok.shape), -1)
        return cls(of_call, np.maximum(pairs[:, 1], 1))

    def workload(self, plan: Plan, model: int, question: Ints, stage: Ints, ready_s: Floats) -> Workload:
        """The requests that reach a model's cluster, in this order."""
        symbols = self.of_call[question, stage]
        there = symbols >= 0
        return Workload(
            name=f"calls of {plan.models[model]}",
            arrival_s=ready_s,
            prompt_tok=plan.prompt_tok[question, stage],
            output_tok=plan.output_tok[question, stage],
            symbol_ptr=np.concatenate(([0], np.cumsum(there.sum(axis=1)))),
            symbols=symbols[there],
            symbol_tok=self.tok,
            session=question,
        )
