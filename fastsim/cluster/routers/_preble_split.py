"""Kernels of Preble's autoscaling: a prefix for which requests queue longer and longer gets more replicas.

Where the mean wait for a prefix has doubled over H, rebalancing notwithstanding, the lightest replica without
the prefix joins those that have it, and its subtree is split among them: each child belongs to the replica
that has been given least work of the prefix since the split, when a request with it first comes. A request
that has nothing below the prefix in common with others is a child of its own.
"""

from __future__ import annotations

from fastsim._jit import kernel
from fastsim.cluster._state import BITS, NONE
from fastsim.cluster.routers import _preble_window as win
from fastsim.cluster.routers.tree import replicas_of

_LEAST_WAITS = 5  # in each half of the window, before two means are compared


@kernel(inline="always")
def _shares(view, row, r):
    return view.memory[row + win.N_NODE + r // BITS] >> (r % BITS) & 1 == 1


@kernel
def shared(view, node):
    """Whether a node was given more replicas and its subtree is split."""
    return view.memory[win.node_row(view, node) + win.GROWN_PS] > 0


@kernel
def waits_doubled(view, node, now, horizon_ps, least_wait_s):
    """Whether requests for a node wait twice as long in the newer half of the window as in the older one.

    Waits below `least_wait_s` on average are no queue; after each growth a whole window must pass.
    """
    memory = view.memory
    row = win.node_row(view, node)
    if memory[row + win.GROWN_PS] > 0 and memory[row + win.GROWN_PS] - 1 + horizon_ps > now:
        return False
    newer = memory[row + win.NEW_WAITS]
    older = memory[row + win.OLD_WAITS]
    if newer < _LEAST_WAITS or older < _LEAST_WAITS:
        return False
    newer_s = memory[row + win.NEW_WAIT_PS] * 1e-12 / newer
    return newer_s >= least_wait_s and newer_s >= 2.0 * (memory[row + win.OLD_WAIT_PS] * 1e-12 / older)


@kernel
def grow(view, node, now):
    """Give a node the lightest replica that it is not on yet, and split its subtree anew; False if on all."""
    memory = view.memory
    row = win.node_row(view, node)
    if memory[row + win.GROWN_PS] == 0:
        for word in range(view.holds.shape[1]):
            memory[row + win.N_NODE + word] = view.holds[node, word]
    lightest = NONE
    for r in range(view.load.shape[0]):
        if not _shares(view, row, r) and (lightest == NONE or view.real[r] < view.real[lightest]):
            lightest = r
    if lightest == NONE:
        return False
    memory[row + win.N_NODE + lightest // BITS] |= 1 << (lightest % BITS)
    memory[row + win.GROWN_PS] = now + 1
    memory[row + win.SPLIT] += 1
    for r in range(view.load.shape[0]):
        memory[win.pair_row(view, node * replicas_of(view) + r) + win.SHARE_PS] = 0
    return True


@kernel
def part_of(view, node, child):
    """Replica that a split node's child belongs to; `child` -1 is one that has nothing else in common."""
    memory = view.memory
    row = win.node_row(view, node)
    child_row = win.node_row(view, child)
    if child != NONE and memory[child_row + win.HOME_SPLIT] == memory[row + win.SPLIT]:
        return memory[child_row + win.HOME]
    chosen = NONE
    least_ps = 0
    for r in range(view.load.shape[0]):
        share_ps = memory[win.pair_row(view, node * replicas_of(view) + r) + win.SHARE_PS]
        if _shares(view, row, r) and (chosen == NONE or share_ps < least_ps):
            chosen = r
            least_ps = share_ps
    if child != NONE:
        memory[child_row + win.HOME] = chosen
        memory[child_row + win.HOME_SPLIT] = memory[row + win.SPLIT]
    return chosen


@kernel
def count_share(view, node, r, work_ps):
    """Note the work given to a replica of a split node."""
    view.memory[win.pair_row(view, node * replicas_of(view) + r) + win.SHARE_PS] += work_ps
