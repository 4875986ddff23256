"""Play a plan through: when every call reaches its model's cluster, and what became of it.

Where calls go from cluster to cluster one way only (a cascade), each cluster is simulated once, in that
order: nothing that happens later on can come back. Clusters whose calls depend on their own answers, directly
or through others (a system that generates and refines by one model), share one clock (`coupled`).
"""

from __future__ import annotations

from collections.abc import Iterator
from graphlib import TopologicalSorter

import numpy as np

from fastsim.cluster.simulate import Result as ClusterResult
from fastsim.fleet.coupled import coupled
from fastsim.fleet.plan import Plan
from fastsim.fleet.trace import Bools, Serving, Symbols, Trace, follow, note, unplayed
from fastsim.selection.routed import NO_CALL
from fastsim.selection.tables import Floats, Ints


def play(plan: Plan, arrival_s: Floats, serving: Serving) -> tuple[Trace, dict[int, ClusterResult]]:
    """Play a plan through.

    Parameters
    ----------
    plan : Plan
    arrival_s : float64[n]
        Ascending.
    serving : Serving

    Returns
    -------
    trace : Trace
    results : dict of int to fastsim.cluster.simulate.Result
        Of every model that was called.
    """
    trace, symbols = unplayed(plan), Symbols.of(plan)
    results: dict[int, ClusterResult] = {}
    for group, together in groups(plan):
        follow(plan, arrival_s, trace)
        if together:
            results |= coupled(plan, trace, symbols, group, serving)
            continue
        (model,) = group
        question, stage = _reaching(plan, trace, model)
        if len(question):
            workload = symbols.workload(plan, model, question, stage, trace.ready_s[question, stage])
            results[model] = serving.serve(model, workload, question, stage)
            note(trace, question, stage, results[model])
    follow(plan, arrival_s, trace)
    return trace, results


# --- in which order -----------------------------------------------------------------------------------------


def groups(plan: Plan) -> Iterator[tuple[list[int], bool]]:
    """Models in the order in which calls pass, those together whose calls depend on each other both ways.

    Yields
    ------
    models : list of int
    together : bool
        Whether their calls depend on their own answers.
    """
    from scipy.sparse.csgraph import connected_components

    follows = _follows(plan)
    count, part = connected_components(follows, directed=True, connection="strong")
    before: dict[int, set[int]] = {group: set() for group in range(count)}
    for first, then in np.argwhere(follows):
        if part[first] != part[then]:
            before[part[then]].add(part[first])
    for group in TopologicalSorter(before).static_order():
        models = np.flatnonzero(part == group).tolist()
        yield models, bool(follows[np.ix_(models, models)].any())


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


def _reaching(plan: Plan, trace: Trace, model: int) -> tuple[Ints, Ints]:
    """Question and stage of each call that reaches a cluster, by arrival; ties by question, then stage."""
    there = (plan.calls == model) & (trace.made | trace.refused) & np.isfinite(trace.ready_s)
    question, stage = np.nonzero(there)
    order = np.argsort(trace.ready_s[question, stage], kind="stable")
    return question[order], stage[order]
