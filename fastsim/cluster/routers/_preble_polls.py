"""Kernels of the engines' hit ratios, as Preble's released scheduler polls them."""

from __future__ import annotations

from fastsim._jit import kernel
from fastsim.cluster.routers import _preble_nodes as nd
from fastsim.cluster.routers.tree import REPLICAS


@kernel
def poll(view, now, every_ps, horizon_ps):
    """Poll the replicas' hit ratios if that is due; returns the best of them as of the last poll."""
    memory = view.memory
    number = now // every_ps
    best = 2 * view.tree[REPLICAS]
    if number + 1 == memory[nd.POLL]:
        return view.real[best]
    memory[nd.POLL] = number + 1
    _count_hits(view, number * every_ps, nd.POLLED, nd.FIRST, 1)
    _count_hits(view, number * every_ps - horizon_ps, nd.POLLED_OUT, nd.POLLED, -1)
    view.real[best] = -1.0
    for r in range(view.load.shape[0]):
        row = nd.replica_row(r)
        ratio = (
            memory[row + nd.HIT_TOK] / memory[row + nd.PROMPT_TOK] if memory[row + nd.PROMPT_TOK] > 0 else 0.0
        )
        if ratio > view.real[best]:
            view.real[best] = ratio
            memory[nd.BEST] = r
    return view.real[best]


@kernel
def _count_hits(view, until, out, end, by):
    """Move one end of the polled window up to `until`."""
    memory = view.memory
    while memory[out] < memory[end]:
        its = nd.request_row(view, memory[nd.request_row(view, memory[out]) + nd.NTH_FIRST])
        if memory[its + nd.FIRST_PS] > until:
            return
        memory[out] += 1
        row = nd.replica_row(memory[its + nd.AT])
        memory[row + nd.HIT_TOK] += by * memory[its + nd.ITS_HIT_TOK]
        memory[row + nd.PROMPT_TOK] += by * memory[its + nd.ITS_PROMPT_TOK]
