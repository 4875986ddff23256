"""Play a plan through: when every call reaches its model's cluster, and what became of it.

Where calls go from cluster to cluster one way only (a cascade), each cluster is simulated once, in that
order: nothing that happens later on can come back. Where a model is called after its own answers, or after
those that depend on them (a system that generates and refines by one model), its cluster is simulated again
and again until the instants at which calls reach it no longer change. A call takes time, so with every round
they are right up to a later instant, and the end is exact: waveform relaxation (Lelarasmee, Ruehli and
Sangiovanni-Vincentelli, IEEE Transactions on CAD 1, 1982). That takes up to as many rounds as the shortest
calls could follow each other during the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from graphlib import TopologicalSorter

import numpy as np
from numpy.typing import NDArray

from fastsim.cluster.simulate import Result as ClusterResult
from fastsim.fleet.plan import Plan
from fastsim.selection.routed import NO_CALL
from fastsim.selection.tables import Floats, Ints
from fastsim.workloads import Workload

Bools = NDArray[np.bool_]
# Simulates a cluster: (model, workload, question and stage of each request) -> its result.
Serve = Callable[[int, Workload, Ints, Ints], ClusterResult]


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


def play(plan: Plan, arrival_s: Floats, serve: Serve) -> tuple[Trace, dict[int, ClusterResult], int]:
    """Play a plan through.

    Parameters
    ----------
    plan : Plan
    arrival_s : float64[n]
        Ascending.
    serve : callable

    Returns
    -------
    trace : Trace
    results : dict of int to fastsim.cluster.simulate.Result
        Of every model that was called.
    rounds : int
        Most simulations of one cluster: 1 where calls go one way.
    """
    stage = _Stage(plan, arrival_s, serve)
    rounds = max(stage.settle(group) for group in groups(plan))
    _follow(plan, arrival_s, stage.trace)
    return stage.trace, stage.results, rounds


class _Stage:
    """Where a plan is played, one group of clusters after the other."""

    def __init__(self, plan: Plan, arrival_s: Floats, serve: Serve) -> None:
        self.plan, self.arrival_s, self.serve = plan, arrival_s, serve
        self.trace, self.symbols = _unplayed(plan), _Symbols.of(plan)
        self.results: dict[int, ClusterResult] = {}
        self.sent: dict[int, tuple[Ints, Ints, Floats]] = {}  # what reached each cluster when last simulated

    def settle(self, group: list[int]) -> int:
        """Simulate clusters until what reaches them stays the same; returns the rounds that took."""
        rounds = 0
        while any([self._simulate(model) for model in group]):
            rounds += 1
        return rounds

    def _reaching(self, model: int) -> tuple[Ints, Ints, Floats]:
        _follow(self.plan, self.arrival_s, self.trace)
        question, stage = _reaching(self.plan, self.trace, model)
        return question, stage, self.trace.ready_s[question, stage]

    def _simulate(self, model: int) -> bool:
        """Simulate a cluster if what reaches it differs from the last time; returns whether it does."""
        question, stage, ready_s = now = self._reaching(model)
        before = self.sent.get(model)
        if before is not None and all(map(np.array_equal, before, now)):
            return False
        self.sent[model] = now
        _forget(self.trace, self.plan.calls == model)
        self.results.pop(model, None)
        if len(question):
            workload = self.symbols.workload(self.plan, model, question, stage, ready_s)
            self.results[model] = self.serve(model, workload, question, stage)
            _note(self.trace, question, stage, self.results[model])
        return True


# --- in which order -----------------------------------------------------------------------------------------


def groups(plan: Plan) -> Iterator[list[int]]:
    """Models in the order in which calls pass, those together whose calls depend on each other both ways."""
    from scipy.sparse.csgraph import connected_components

    follows = _follows(plan)
    count, part = connected_components(follows, directed=True, connection="strong")
    before: dict[int, set[int]] = {group: set() for group in range(count)}
    for first, then in np.argwhere(follows):
        if part[first] != part[then]:
            before[part[then]].add(part[first])
    for group in TopologicalSorter(before).static_order():
        yield np.flatnonzero(part == group).tolist()


def _follows(plan: Plan) -> Bools:
    """bool[K, K]: whether some question calls the second model after an answer of the first."""
    models = len(plan.models)
    follows = np.zeros((models, models), bool)
    # bool[n, K] a stage: which models' answers its end comes after
    behind: list[Bools] = []
    for stage, inputs in enumerate(plan.inputs):
        after = np.zeros((plan.size, models), bool)
        for i in inputs:
            after |= behind[i]
        called = plan.calls[:, stage]
        made = called != NO_CALL
        for model in range(models):
            follows[:, model] |= after[called == model].any(axis=0)
        after[made, called[made]] = True
        behind.append(after)
    return follows


# --- from call to call --------------------------------------------------------------------------------------


def _unplayed(plan: Plan) -> Trace:
    shape = plan.calls.shape
    nowhere, nothing = np.full(shape, -1, np.int64), np.zeros(shape, np.int64)
    never = [np.full(shape, np.nan) for _ in range(3)]
    no = [np.zeros(shape, bool) for _ in range(2)]
    return Trace(no[0], no[1], never[0], never[1], never[2], nowhere, nothing)


def _follow(plan: Plan, arrival_s: Floats, trace: Trace) -> None:
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


def _reaching(plan: Plan, trace: Trace, model: int) -> tuple[Ints, Ints]:
    """Question and stage of each call that reaches a cluster, by arrival; ties by question, then stage."""
    there = (plan.calls == model) & (trace.made | trace.refused) & np.isfinite(trace.ready_s)
    question, stage = np.nonzero(there)
    order = np.argsort(trace.ready_s[question, stage], kind="stable")
    return question[order], stage[order]


def _forget(trace: Trace, calls: Bools) -> None:
    trace.refused[calls] = False
    trace.done_s[calls] = np.nan
    trace.first_s[calls] = np.nan
    trace.replica[calls] = -1
    trace.hit_tok[calls] = 0


def _note(trace: Trace, question: Ints, stage: Ints, result: ClusterResult) -> None:
    """Write down what a cluster did with the calls that reached it."""
    columns = result.columns
    trace.refused[question, stage] = columns["replica"] < 0
    trace.done_s[question, stage] = columns["done_s"]
    trace.first_s[question, stage] = columns["first_token_s"]
    trace.replica[question, stage] = columns["replica"]
    trace.hit_tok[question, stage] = columns["hit_tok"]


# --- prompts ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Symbols:
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
    def of(cls, plan: Plan) -> _Symbols:
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
