"""A cluster whose requests come when somebody says so: for what follows from its own answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fastsim.cluster import _state as st
from fastsim.cluster._loop import next_ps, run, run_to_finish
from fastsim.cluster.config import Cluster
from fastsim.cluster.routers.view import deaf, pack_views
from fastsim.cluster.simulate import Result, begun, repaired, result_of
from fastsim.workloads import Workload

FAR_PS = (st.NEVER >> 1) - 1  # after everything


class Stepwise:
    """A run that stops wherever it is told to.

    Parameters
    ----------
    workload : Workload
        All requests that may come, in any order; their arrival times do not count.
    cluster, router, router_params
        As in `fastsim.simulate`.
    **options
        The others of its options.

    Raises
    ------
    InputError
        As `fastsim.simulate`.
    """

    def __init__(
        self,
        workload: Workload,
        cluster: Cluster,
        router: str,
        router_params: Mapping[str, Any] | None,
        **options: Any,
    ) -> None:
        self.workload = workload
        self.policy, self.state, self.views = begun(workload, cluster, router, router_params, **options)
        self.came: list[int] = []
        self._in_flight: list[int] = []
        self._settled = (0, 0)  # requests finished, and held back, when it was last looked
        self.state.pool[st.COMING] = 0

    def next_ps(self) -> int:
        """By when the next thing happens if nothing else comes; `FAR_PS` if nothing does."""
        return int(next_ps(self.state))

    def run_until(self, ps: int) -> tuple[list[int], list[int]]:
        """Let all happen before an instant, and the ends of steps at it.

        Returns
        -------
        finished, refused : list of int
            Requests of which that was not said before.
        """
        self.state.pool[st.UNTIL_PS] = ps
        policy, heard = self.policy, self.policy.heard or deaf
        while (fault := int(run(self.state, pack_views(self.views), policy.policy, heard))) != st.NO_FAULT:
            self.state, self.views = repaired(fault, self.state, self.views, policy)
        return self._news()

    def run_to_finish(self, ps: int) -> tuple[list[int], list[int]]:
        """As `run_until`, but stop as soon as a request has finished, or at the next thing at the latest."""
        if self._routers_concerned():
            return self.run_until(min(ps, self.next_ps()))
        while (fault := int(run_to_finish(self.state, ps))) != st.NO_FAULT:
            self.state, self.views = repaired(fault, self.state, self.views, self.policy)
        return self._news()

    def _routers_concerned(self) -> bool:
        """Whether routers, blocks on their way or outages have a part in what comes next."""
        cfg, pool = self.state.cfg, self.state.pool
        quiet = cfg[st.NEWS] == 0 and cfg[st.PERIOD_PS] == 0 and pool[st.N_HELD] == 0
        return not quiet or pool[st.ON_WAY] != st.NONE or pool[st.NEXT_OUTAGE] < len(self.state.outage)

    def done_ps(self, request: int) -> int:
        """When a request that has finished did so."""
        return int(self.state.req[request, st.DONE])

    def arrive(self, request: int, ps: int) -> tuple[list[int], list[int]]:
        """Let a request come at an instant until which everything else has been let happen.

        Returns
        -------
        finished, refused : list of int
            As `run_until`.
        """
        pool = self.state.pool
        self.state.req[request, st.ARRIVAL] = ps
        pool[st.NEXT_REQUEST], pool[st.COMING] = request, request + 1
        self.came.append(request)
        self._in_flight.append(request)
        self._settled = (-1, -1)
        return self.run_until(ps)

    def _news(self) -> tuple[list[int], list[int]]:
        now = int(self.state.rep[:, st.FINISHED].sum()), int(self.state.pool[st.N_HELD])
        if now == self._settled:
            return [], []
        self._settled = now
        flight = np.array(self._in_flight, np.int64)
        rows = self.state.req[flight]
        refused = rows[:, st.REPLICA] == st.NONE
        # DONE may be when blocks sent along arrived, which is before the first token
        finished = (rows[:, st.FIRST] > 0) & (rows[:, st.DONE] >= rows[:, st.FIRST])
        self._in_flight = flight[~finished & ~refused].tolist()
        return flight[finished].tolist(), flight[refused].tolist()

    def result(self) -> Result:
        """The run of those that came, in that order."""
        order = np.array(self.came, np.int64)
        whole = result_of(self.workload, self.state, 0.0)
        columns = {name: values[order] for name, values in whole.columns.items()}
        columns["request"] = np.arange(len(order))
        columns["arrival_s"] = self.state.req[order, st.ARRIVAL] * 1e-12
        return replace(whole, columns=columns)
