"""Kernels of the tree that SGLang's router keeps: a radix tree of prompts sent, cut down by whole leaves.

A node of that tree is a stretch of prompts between two places where some that were sent part or end. The runs
of `tree` are finer, as they part wherever any two prompts of the workload do: of each run it is known what
followed it, so that runs of one node go together.

Each replica has a list of its entries: first those that none of its prompts ended with, newest first; then
the others, by the time when one did. The first of a list without children below it is the leaf to go next.
"""

from __future__ import annotations

from fastsim._jit import kernel
from fastsim.cluster._state import BITS, NONE
from fastsim.cluster._table import get
from fastsim.cluster.routers.tree import (
    CAPACITY_BLK,
    CHILDREN,
    EPOCH,
    KEY,
    NEWER,
    OLDEST,
    REPLICAS,
    RUNS,
    SIZE_BLK,
    STAMP,
    UP,
    append_entry,
    forget,
    new_entry,
    prepend_entry,
    unlink_entry,
)

# View.node
FIRST, NEXT = 0, 1  # replica that was sent the run first; the run or tail that follows,
_END = -2  # or that prompts which were sent part or end here


@kernel
def insert(view, request, r):
    """Remember that the prompt of `request` was sent to replica r."""
    view.tree[EPOCH] += 1
    replicas = view.tree[REPLICAS]
    tail = view.tree[RUNS] + request
    last = view.path_ptr[request + 1] - 1
    up = NONE
    for place in range(view.path_ptr[request], last + 1):
        run = view.path[place]
        following = view.path[place + 1] if place < last else (tail if view.tail_blk[request] > 0 else _END)
        if view.node[run, FIRST] == NONE:
            view.node[run, FIRST] = r
        if view.node[run, NEXT] == NONE:
            view.node[run, NEXT] = following
        elif view.node[run, NEXT] != following:
            view.node[run, NEXT] = _END
        up = _keep(view, run * replicas + r, view.run_blk[run], up, following == _END)
        view.holds[run, r // BITS] |= 1 << (r % BITS)
    if view.tail_blk[request] > 0:
        _keep(view, tail * replicas + r, view.tail_blk[request], up, True)


@kernel
def _keep(view, key, blocks, up, leaf):
    """Add an entry if need be, and renew it if a prompt ends there; returns it."""
    entry = view.entry
    at = key % view.tree[REPLICAS]
    e = get(view.where, key, NONE)
    if e == NONE:
        e = new_entry(view, key, blocks, at)
        entry[e, STAMP] = 0
        entry[e, UP] = up
        if up != NONE:
            entry[up, CHILDREN] += 1
        if not leaf:
            prepend_entry(view, at, e)
    elif leaf:
        unlink_entry(view, at, e)
    if leaf:
        append_entry(view, at, e)
        entry[e, STAMP] = view.tree[EPOCH]
    return e


@kernel
def trim(view, r):
    """Drop the leaves of replica r that were used longest ago, until its tree is within the capacity."""
    entry = view.entry
    e = view.list[r, OLDEST]
    while e != NONE and view.list[r, SIZE_BLK] > view.tree[CAPACITY_BLK]:
        if entry[e, CHILDREN] > 0:
            e = entry[e, NEWER]
            continue
        reached = entry[e, STAMP]
        following, up = _drop_leaf(view, e, entry[e, NEWER])
        # What lies above may be a leaf now, of those that were passed by: then it is the next to go.
        while (
            up != NONE
            and entry[up, CHILDREN] == 0
            and entry[up, STAMP] < reached
            and view.list[r, SIZE_BLK] > view.tree[CAPACITY_BLK]
        ):
            following, up = _drop_leaf(view, up, following)
        e = following


@kernel
def _drop_leaf(view, e, following):
    """Drop the node that ends with an entry; returns what to go on with, and the entry above the node.

    To go on with is `following`, or what follows it in the list if it went, too.
    """
    entry = view.entry
    while True:
        if e == following:
            following = entry[e, NEWER]
        up = entry[e, UP]
        run = entry[e, KEY] // view.tree[REPLICAS]
        forget(view, e)
        if run < view.tree[RUNS]:
            _let_go(view, run)
        if up == NONE or entry[up, CHILDREN] > 0:
            return following, up
        if view.node[entry[up, KEY] // view.tree[REPLICAS], NEXT] == _END:
            return following, up
        e = up


@kernel
def _let_go(view, run):
    """Forget what is known of a run that nobody was sent any more: the next to be sent it makes it anew."""
    some = 0
    for word in range(view.holds.shape[1]):
        some |= view.holds[run, word]
    if some == 0:
        view.node[run, FIRST] = NONE
        view.node[run, NEXT] = NONE
