"""Sessions whose turns wait for the answers before them: the loop that clients close."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from fastsim.cluster import _sessions as turns
from fastsim.cluster import _state as st
from fastsim.cluster.routers import Router
from fastsim.cluster.routers.view import deaf, pack_views
from fastsim.cluster.simulate import Result, repaired, result_of, stoppable
from fastsim.workloads import Workload

_PS_PER_S = 1e12


def serve_sessions(
    workload: Workload, policy: Router, state: Any, views: list[Any], warmup_s: float
) -> Result:
    """Serve a workload in which requests follow others.

    Parameters
    ----------
    workload : Workload
    policy, state, views
        As `simulate.begun` makes them.
    warmup_s : float
        As in `simulate`.

    Returns
    -------
    Result
        Rows in the order of arrival; ``request`` is the place in the workload.
    """
    state.pool[[st.COMING, st.UNTIL_PS]] = 0
    state.req[:, st.REPLICA] = turns.NOT_SENT
    turn, loop = _followers(workload), _lists(workload, len(state.load))
    while True:
        seen, heard = pack_views(views), policy.heard or deaf
        work = partial(turns.run_sessions, state, seen, policy.policy, heard, turn, loop)
        fault = stoppable(state, work)
        if fault == st.NO_FAULT:
            return _result(workload, state, warmup_s)
        state, views = repaired(fault, state, views, policy)


def _followers(workload: Workload) -> np.ndarray:
    """Who follows whom after what time, and the requests that follow none as a heap: they are in order."""
    turn = np.full((len(workload), turns.N_TURN), st.NONE, np.int64)
    turn[:, turns.THINK_PS] = np.rint(workload.think_s * _PS_PER_S)
    waits = np.flatnonzero(workload.follows >= 0)
    later = waits[np.lexsort((waits, workload.follows[waits]))]
    before = workload.follows[later]
    first = np.concatenate(([True], before[1:] != before[:-1]))
    turn[before[first], turns.FIRST_LATER] = later[first]
    turn[later[:-1][~first[1:]], turns.NEXT_LATER] = later[1:][~first[1:]]
    opening = np.flatnonzero(workload.follows < 0)
    turn[: len(opening), turns.DUE] = opening
    turn[: len(opening), turns.DUE_PS] = np.rint(workload.arrival_s[opening] * _PS_PER_S)
    return turn


def _lists(workload: Workload, replicas: int) -> np.ndarray:
    loop = np.zeros(turns.LISTS + 2 * replicas, np.int64)
    loop[turns.N_DUE] = np.count_nonzero(workload.follows < 0)
    loop[[turns.LAST, turns.HELD]] = st.NONE
    loop[turns.LISTS :: 2] = st.NONE
    return loop


def _result(workload: Workload, state: Any, warmup_s: float) -> Result:
    order = np.argsort(state.req[:, st.ARRIVAL], kind="stable")
    whole = result_of(workload, state, warmup_s)
    columns = {name: values[order] for name, values in whole.columns.items()}
    waited = workload.follows[order] >= 0
    columns["arrival_s"][waited] = state.req[order[waited], st.ARRIVAL] / _PS_PER_S
    log = whole.log and {name: values[order] for name, values in whole.log.items()}
    return replace(whole, columns=columns, log=log)


def as_it_came(workload: Workload, result: Result) -> tuple[Workload, Result]:
    """A run of sessions as one of requests that came when they did, numbered in the order of arrival."""
    columns: dict[str, Any] = result.columns
    opened = replace(workload, follows=np.full(len(workload), -1), think_s=np.zeros(len(workload)))
    came = opened.arranged(columns["request"], columns["arrival_s"], "at the times the run made of sessions")
    return came, replace(result, columns={**columns, "request": np.arange(len(came))})
