"""Decisions alone: what routers do with requests that all come at one instant, none of which is served."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

from fastsim import Cluster
from fastsim._jit import kernel
from fastsim.cluster import _state as st
from fastsim.cluster._look import read_news, refresh
from fastsim.cluster._loop import run
from fastsim.cluster._routing import take
from fastsim.cluster._workspace import grown, new_state, sizes
from fastsim.cluster.knowledge import new_views, owners, settle, views_with_larger_trees
from fastsim.cluster.routers import Router, get
from fastsim.cluster.routers.view import deaf, pack_views, view_at
from fastsim.cluster.simulate import compiled
from fastsim.workloads import Workload


@dataclass
class Burst:
    """Replicas that have served the start of a workload, and are idle; the rest of it comes at one instant.

    So the caches, and what routers remember of what they sent, are as full as that start has made them.

    Parameters
    ----------
    state, views : State, list of RouterView
    policy : Router
    served : int
        Requests of the start.
    """

    state: Any
    views: list[Any]
    policy: Router
    served: int

    @classmethod
    def after(cls, served: int, workload: Workload, cluster: Cluster, router: str) -> Burst:
        """Serve the first requests of a workload, and let all others come when that is done."""
        policy = replace(get(router), blind=False)
        params = policy.spec(None)
        knowledge = settle(policy, params, "native", 1, "native", "sent")
        prompts = compiled(workload, cluster)
        owner = owners(len(workload), 1, 0, 0)
        state = new_state(workload, prompts, cluster, knowledge, policy, owner, sizes(prompts, cluster))
        views = new_views(state, knowledge, policy, params, workload, cluster, 0, 0)
        burst = cls(state, views, policy, served)
        burst._serve()
        return burst

    def _serve(self) -> None:
        state = self.state
        news = int(state.cfg[st.NEWS])
        state.pool[st.COMING] = self.served
        self._finish(run)
        state = self.state
        assert state.pool[st.NEXT_REQUEST] == self.served
        state.cfg[st.NEWS] = news  # a run that is over has nothing more to report
        state.pool[st.COMING] = len(state.req)
        state.req[self.served :, st.ARRIVAL] = state.rep[:, st.PS].max() + 1

    def route(self) -> float:
        """Route the requests of the instant; returns the CPU seconds this took."""
        begin = time.process_time()
        self._finish(route_rest)
        spent_s = time.process_time() - begin
        assert self.state.pool[st.NEXT_REQUEST] == len(self.state.req)
        assert self.state.rep[:, st.FINISHED].sum() <= self.served  # nothing was served meanwhile
        return spent_s

    def _finish(self, kernel: Any) -> None:
        """Call a kernel until it is done, with larger pools whenever they fill up."""
        while True:
            fault = int(
                kernel(self.state, pack_views(self.views), self.policy.policy, self.policy.heard or deaf)
            )
            if fault == st.NO_FAULT:
                return
            if fault == st.FULL_TREE:
                self.views = views_with_larger_trees(self.views)
                self.state.pool[st.FAULT] = st.NO_FAULT
            else:
                self.state = grown(self.state)


@kernel(signature="int64(State, int64[::1], Route, Heard)")
def route_rest(s, views, route, heard):
    """As `run`, as long as requests arrive at the instant of the next one; returns the fault."""
    pool = s.pool
    i = pool[st.NEXT_REQUEST]
    now = s.req[i, st.ARRIVAL]
    if s.cfg[st.PERIOD_PS] and pool[st.REFRESHED] < now:
        refresh(s, view_at(views, 0), now)
        pool[st.REFRESHED] = now
    while i < s.req.shape[0] and pool[st.FAULT] == st.NO_FAULT:
        if s.cfg[st.NEWS]:
            read_news(s, views, heard, now)
        take(s, views, route, i, now)
        i = pool[st.NEXT_REQUEST]
    return pool[st.FAULT]
