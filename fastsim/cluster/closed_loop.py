"""Sessions whose turns wait for the answers before them: the loop that clients close."""

from __future__ import annotations

from dataclasses import replace
from heapq import heapify, heappop, heappush
from typing import Any

import numpy as np

from fastsim.cluster import _state as st
from fastsim.cluster.simulate import Result, result_of
from fastsim.cluster.stepwise import FAR_PS, Stepwise
from fastsim.workloads import Workload

_PS_PER_S = 1e12


def serve_sessions(run: Stepwise, warmup_s: float) -> Result:
    """Serve a workload in which requests follow others.

    A request comes its think time after the last token of the one it follows, or after that one was refused.
    At one instant step ends come first, then the arrivals in the workload's order.

    Parameters
    ----------
    run : Stepwise
        At its start.
    warmup_s : float
        As in `simulate`.

    Returns
    -------
    Result
        Rows in the order of arrival; ``request`` is the place in the workload.
    """
    workload = run.workload
    think_ps = np.rint(workload.think_s * _PS_PER_S).astype(np.int64).tolist()
    followers = _followers(workload.follows)
    opening = np.flatnonzero(workload.follows < 0)
    opening_ps = np.rint(workload.arrival_s[opening] * _PS_PER_S).astype(np.int64)
    due = list(zip(opening_ps.tolist(), opening.tolist(), strict=True))
    heapify(due)

    def let_follow(request: int, answered_ps: int) -> None:
        for later in followers.get(request, ()):
            heappush(due, (answered_ps + think_ps[later], later))

    while True:
        now = run.next_ps()
        if due and due[0][0] < now:
            now, request = heappop(due)
            finished, refused = run.arrive(request, now)
        elif now < FAR_PS:
            finished, refused = run.run_to_finish(due[0][0] if due else FAR_PS)
        else:
            break
        for request in finished:
            let_follow(request, run.done_ps(request))
        for request in refused:
            let_follow(request, now)
    run.run_until(FAR_PS)  # says so if requests are held back for ever
    return _result(run, warmup_s)


def _followers(follows: np.ndarray) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for request in np.flatnonzero(follows >= 0).tolist():
        found.setdefault(int(follows[request]), []).append(request)
    return found


def _result(run: Stepwise, warmup_s: float) -> Result:
    order = np.array(run.came, np.int64)
    whole = result_of(run.workload, run.state, warmup_s)
    columns = {name: values[order] for name, values in whole.columns.items()}
    waited = run.workload.follows[order] >= 0
    columns["arrival_s"][waited] = run.state.req[order[waited], st.ARRIVAL] / _PS_PER_S
    log = whole.log and {name: values[order] for name, values in whole.log.items()}
    return replace(whole, columns=columns, log=log)


def as_it_came(workload: Workload, result: Result) -> tuple[Workload, Result]:
    """A run of sessions as one of requests that came when they did, numbered in the order of arrival."""
    columns: dict[str, Any] = result.columns
    opened = replace(workload, follows=np.full(len(workload), -1), think_s=np.zeros(len(workload)))
    came = opened.arranged(columns["request"], columns["arrival_s"], "at the times the run made of sessions")
    return came, replace(result, columns={**columns, "request": np.arange(len(came))})
