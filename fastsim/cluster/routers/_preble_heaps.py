"""Kernels of a heap of nodes a replica: those that Preble's released scheduler could move, cheapest on top.

Of equal cost the one seen first. A place of a heap is two numbers, the node and its cost in picoseconds. That
changes on all its replicas at once: a heap is told when it falls, and finds out that it rose when it matters.
"""

from __future__ import annotations

from fastsim._jit import kernel
from fastsim.cluster._state import NONE
from fastsim.cluster.routers import _preble_rows as rw


@kernel
def cheapest(view, r):
    """Replica r's cheapest movable node, -1 if it has none."""
    memory = view.memory
    if memory[rw.replica_row(r) + rw.N_MOVABLE] == 0:
        return NONE
    heap = rw.heap_row(view, r)
    while memory[heap + 1] != memory[rw.node_row(view, memory[heap]) + rw.NODE_LOAD_PS]:
        _settle(view, r, 0, memory[heap])
    return memory[heap]


@kernel(inline="always")
def _before(view, node, cost_ps, at):
    """Whether a node of a cost comes before the one in a place of a heap."""
    memory = view.memory
    if cost_ps != memory[at + 1]:
        return cost_ps < memory[at + 1]
    return memory[rw.node_row(view, node) + rw.SEEN] < memory[rw.node_row(view, memory[at]) + rw.SEEN]


@kernel(inline="always")
def _comes_later(view, at):
    """1 if the node in a place of a heap comes after the one in the next place, else 0.

    A number to add rather than a branch to take: of two children either may come first, and a branch that is
    guessed wrong half of the time made a decision on 64 replicas 7 % dearer.
    """
    memory = view.memory
    if memory[at + 1] == memory[at + 3]:
        return 1 if _before(view, memory[at + 2], memory[at + 3], at) else 0
    return 1 if memory[at + 3] < memory[at + 1] else 0


@kernel(inline="always")
def _put(view, r, at, node, cost_ps):
    memory = view.memory
    row = rw.heap_row(view, r) + 2 * at
    memory[row] = node
    memory[row + 1] = cost_ps
    memory[rw.pair_row(view, node, r) + rw.PLACE] = at + 1


@kernel
def _settle(view, r, at, node):
    """Let a node sink or rise from a place to where it belongs."""
    memory = view.memory
    heap = rw.heap_row(view, r)
    size = memory[rw.replica_row(r) + rw.N_MOVABLE]
    cost_ps = memory[rw.node_row(view, node) + rw.NODE_LOAD_PS]
    while at > 0:
        above = heap + 2 * ((at - 1) // 2)
        if not _before(view, node, cost_ps, above):
            break
        _put(view, r, at, memory[above], memory[above + 1])
        at = (at - 1) // 2
    child = 2 * at + 1
    while child < size:
        row = heap + 2 * child
        if child + 1 < size:
            later = _comes_later(view, row)
            child += later
            row += 2 * later
        if _before(view, node, cost_ps, row):
            break
        _put(view, r, at, memory[row], memory[row + 1])
        at = child
        child = 2 * at + 1
    _put(view, r, at, node, cost_ps)


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
        _settle(view, r, at, memory[rw.heap_row(view, r) + 2 * size])


@kernel
def settle(view, node, r):
    """Put a node, if it is in replica r's heap, where it belongs now that its cost has fallen."""
    place = view.memory[rw.pair_row(view, node, r) + rw.PLACE]
    if place > 0:
        _settle(view, r, place - 1, node)
