"""What a request would have met on every replica, all other requests staying where they were sent."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fastsim.cluster import _state as st
from fastsim.cluster._loop import run_apart
from fastsim.cluster._workspace import grown, new_state, sizes
from fastsim.cluster.config import Cluster
from fastsim.cluster.knowledge import settle
from fastsim.cluster.prefix import Prompts
from fastsim.cluster.routers import get
from fastsim.cluster.simulate import compiled
from fastsim.errors import InputError
from fastsim.typed import checked
from fastsim.workloads import Workload

Floats = npt.NDArray[np.float64]


@checked
def hindsight(
    workload: Workload, cluster: Cluster, replica: npt.ArrayLike, requests: Sequence[int]
) -> Floats:
    """Latency of requests on every replica, if all others had been sent where they were.

    Each is an exact run of the replica with its requests and this one. Blocks that a router had sent along
    are not: with such a router even the replica chosen looks worse than it was.

    Parameters
    ----------
    workload, cluster
        As they were simulated.
    replica : array_like of int, shape (n,)
        Where each request went; -1 for one refused.
    requests : sequence of int
        Which ones to ask for.

    Returns
    -------
    float64[len(requests), replicas]
        Seconds from arrival to the last token.

    Raises
    ------
    InputError
        If there is no such request, or replicas restart or join late, which these runs leave out.
    """
    if cluster.restarts or cluster.joins_s:
        raise InputError("hindsight: replicas that restart or join late are not allowed; it leaves both out")
    where = np.asarray(replica, np.int64)
    prompts = compiled(workload, cluster)
    found = np.empty((len(requests), cluster.replicas))
    for row, i in enumerate(requests):
        if not 0 <= i < len(workload):
            raise InputError(f"request = {i} is not allowed; it must be from 0 to {len(workload) - 1}")
        for r in range(cluster.replicas):
            there = where == r
            there[i] = True
            found[row, r] = _latency_s(workload, prompts, cluster, np.flatnonzero(there), r, i)
    return found


def _latency_s(
    workload: Workload, prompts: Prompts, cluster: Cluster, order: npt.NDArray[np.int64], r: int, i: int
) -> float:
    """Latency of request i on replica r, which serves the requests of `order` and no others."""
    policy = get("round_robin")  # nobody routes, so nobody needs to know anything
    knowledge = settle(policy, policy.spec({}), "live", 1, "native", "sent")
    owner = np.zeros(len(workload), np.int64)
    state = new_state(workload, prompts, cluster, knowledge, policy, owner, sizes(prompts, cluster))
    state.req[order, st.REPLICA] = r
    state.pool[st.SERVING] = r
    while run_apart(state, order) != st.NO_FAULT:
        state = grown(state)
    return float(state.req[i, st.DONE] * 1e-12 - workload.arrival_s[i])
