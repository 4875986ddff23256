"""Kernels of a heap of nodes a replica: those that Preble's released scheduler could move, cheapest on top.

Of equal cost the one seen first. A node's cost changes on all its replicas at once; each heap is told.
"""

from __future__ import annotations

from fastsim._jit import kernel
from fastsim.cluster._state import NONE
from fastsim.cluster.routers import _preble_rows as rw


@kernel
def cheapest(view, r):
    """Replica r's cheapest movable node, -1 if it has none."""
    if view.memory[rw.replica_row(r) + rw.N_MOVABLE] == 0:
        return NONE
    return view.memory[rw.heap_row(view, r)]


@kernel(inline="always")
def _before(view, a, b):
    memory = view.memory
    a = rw.node_row(view, a)
    b = rw.node_row(view, b)
    if memory[a + rw.NODE_LOAD_PS] != memory[b + rw.NODE_LOAD_PS]:
        return memory[a + rw.NODE_LOAD_PS] < memory[b + rw.NODE_LOAD_PS]
    return memory[a + rw.SEEN] < memory[b + rw.SEEN]


@kernel(inline="always")
def _put(view, r, at, node):
    view.memory[rw.heap_row(view, r) + at] = node
    view.memory[rw.pair_row(view, node, r) + rw.PLACE] = at + 1


@kernel
def _settle(view, r, at, node):
    """Let a node sink or rise from a place to where it belongs."""
    memory = view.memory
    heap = rw.heap_row(view, r)
    size = memory[rw.replica_row(r) + rw.N_MOVABLE]
    while at > 0 and _before(view, node, memory[heap + (at - 1) // 2]):
        _put(view, r, at, memory[heap + (at - 1) // 2])
        at = (at - 1) // 2
    child = 2 * at + 1
    while child < size:
        if child + 1 < size and _before(view, memory[heap + child + 1], memory[heap + child]):
            child += 1
        if not _before(view, memory[heap + child], node):
            break
        _put(view, r, at, memory[heap + child])
        at = child
        child = 2 * at + 1
    _put(view, r, at, node)


@kernel
def add(view, node, r):
    """Put a node into replica r's heap."""
    row = rw.replica_row(r)
    view.memory[row + rw.N_MOVABLE] += 1
    _settle(view, r, view.memory[row + rw.N_MOVABLE] - 1, node)


@kernel
def drop(view, node, r):
    """Take a node out of replica r's heap."""
    memory = view.memory
    row = rw.replica_row(r)
    pair = rw.pair_row(view, node, r)
    at = memory[pair + rw.PLACE] - 1
    memory[pair + rw.PLACE] = 0
    memory[row + rw.N_MOVABLE] -= 1
    size = memory[row + rw.N_MOVABLE]
    if at < size:
        _settle(view, r, at, memory[rw.heap_row(view, r) + size])


@kernel
def settle(view, node, r):
    """Put a node, if it is in replica r's heap, where it belongs now that its cost has changed."""
    place = view.memory[rw.pair_row(view, node, r) + rw.PLACE]
    if place > 0:
        _settle(view, r, place - 1, node)
