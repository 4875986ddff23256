"""Kernels of the engines' hit ratios, as Preble's released scheduler polls them."""

from __future__ import annotations

from fastsim._jit import kernel
from fastsim.cluster.routers import _preble_rows as rw
from fastsim.cluster.routers.tree import replicas_of


@kernel
def poll(view, now, every_ps, horizon_ps):
    """Poll the replicas' hit ratios if that is due; returns the best of them as of the last poll."""
    memory = view.memory
    number = now // every_ps
    best = 2 * replicas_of(view)
    if number + 1 == memory[rw.POLL]:
        return view.real[best]
    memory[rw.POLL] = number + 1
    _count_hits(view, number * every_ps, rw.POLLED, rw.FIRST, 1)
    _count_hits(view, number * every_ps - horizon_ps, rw.POLLED_OUT, rw.POLLED, -1)
    view.real[best] = -1.0
    for r in range(view.load.shape[0]):
        row = rw.replica_row(r)
        ratio = (
            memory[row + rw.HIT_TOK] / memory[row + rw.PROMPT_TOK] if memory[row + rw.PROMPT_TOK] > 0 else 0.0
        )
        if ratio > view.real[best]:
            view.real[best] = ratio
            memory[rw.BEST] = r
    return view.real[best]


@kernel
def _count_hits(view, until, out, end, by):
    """Move one end of the polled window up to `until`."""
    memory = view.memory
    while memory[out] < memory[end]:
        its = rw.request_row(view, memory[rw.nth_first(view, memory[out])])
        if memory[its + rw.FIRST_PS] > until:
            return
        memory[out] += 1
        row = rw.replica_row(memory[its + rw.AT])
        memory[row + rw.HIT_TOK] += by * memory[its + rw.ITS_HIT_TOK]
        memory[row + rw.PROMPT_TOK] += by * memory[its + rw.ITS_PROMPT_TOK]
