"""Kernels of the tree that SGLang's router keeps: a radix tree of prompts sent, cut down by whole leaves.

A node of that tree is a stretch of prompts between two places where some that were sent part or end. The runs
of `tree` are finer, as they part wherever any two prompts of the workload do: of each run it is known what
followed it, so that runs of one node go together.

Each replica has a list of its entries: first those that none of its prompts ended with, newest first; then
the others, by the time when one did. The first of a list without children below it is the leaf to go next.
Entries are made when a tree gets larger than it may be for the first time, of what each replica was sent so
far: most runs never evict, and need none.
"""

from __future__ import annotations

from fastsim._jit import kernel
from fastsim.cluster._state import BITS, NONE
from fastsim.cluster._table import get
from fastsim.cluster.routers.tree import (
    CAPACITY_BLK,
    CHILDREN,
    COUNT,
    EPOCH,
    KEY,
    LISTED,
    NEWER,
    OLDEST,
    REPLICAS,
    RUNS,
    SIZE_BLK,
    STAMP,
    UP,
    WANTED,
    append_entry,
    forget,
    new_entry,
    prepend_entry,
    unlink_entry,
)

# View.node: a row a run, then a row a request
FIRST = 0  # replica + 1 that was sent the run first, or the request; 0 if none
_NEXT = 1  # run or request (its tail) + 1 that follows the run, 0 if nothing does,
_END = -1  # or that prompts which were sent part or end there


@kernel
def insert(view, request, r):
    """Remember that the prompt of `request` was sent to replica r; requests come in order."""
    _make_entries(view, request)
    tree = view.tree
    _mark(view, request, r)
    if tree[LISTED]:
        _keep_path(view, request, r)
    elif view.list[r, SIZE_BLK] > tree[CAPACITY_BLK]:
        tree[WANTED] = 0
        for k in range(view.list.shape[0]):
            tree[WANTED] += view.list[k, COUNT]


@kernel
def _mark(view, request, r):
    """Note who was sent the prompt's runs, what follows them, and how much that is."""
    node = view.node
    word = r // BITS
    bit = 1 << (r % BITS)
    tail = view.tree[RUNS] + request
    count = 1 - view.tree[LISTED]  # entries are counted as they are made
    last = view.path_ptr[request + 1] - 1
    for place in range(view.path_ptr[request], last + 1):
        run = view.path[place]
        following = _END
        if place < last:
            following = view.path[place + 1] + 1
        elif view.tail_blk[request] > 0:
            following = tail + 1
        if node[run, FIRST] == 0:
            node[run, FIRST] = r + 1
        if node[run, _NEXT] == 0:
            node[run, _NEXT] = following
        elif node[run, _NEXT] != following:
            node[run, _NEXT] = _END
        if view.holds[run, word] & bit == 0:
            view.holds[run, word] |= bit
            view.list[r, SIZE_BLK] += count * view.run_blk[run]
            view.list[r, COUNT] += count
    node[tail, FIRST] = r + 1
    if view.tail_blk[request] > 0:
        view.list[r, SIZE_BLK] += count * view.tail_blk[request]
        view.list[r, COUNT] += count


@kernel
def _make_entries(view, request):
    """Make entries of all that was sent before `request`, once there is a tree that is too large."""
    tree = view.tree
    if tree[WANTED] == 0 or tree[LISTED]:
        return
    for r in range(view.list.shape[0]):
        view.list[r, SIZE_BLK] = 0
        view.list[r, COUNT] = 0
    for i in range(request):
        r = view.node[tree[RUNS] + i, FIRST] - 1
        if r >= 0:
            _keep_path(view, i, r)
    tree[LISTED] = 1


@kernel
def _keep_path(view, request, r):
    """Make or renew the entries of a prompt sent to replica r."""
    view.tree[EPOCH] += 1
    replicas = view.tree[REPLICAS]
    last = view.path_ptr[request + 1] - 1
    tail_blk = view.tail_blk[request]
    up = NONE
    for place in range(view.path_ptr[request], last + 1):
        run = view.path[place]
        up = _keep(view, run * replicas + r, view.run_blk[run], up, place == last and tail_blk == 0)
    if tail_blk > 0:
        _keep(view, (view.tree[RUNS] + request) * replicas + r, tail_blk, up, True)


@kernel
def _keep(view, key, blocks, up, leaf):
    """Make an entry if need be, and renew it if a prompt ends there; returns it."""
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
def trim(view, request, r):
    """Drop the leaves of replica r that were used longest ago, until its tree is within the capacity.

    `request` is the one that has come; it is not yet in the tree.
    """
    _make_entries(view, request)
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
        if view.node[entry[up, KEY] // view.tree[REPLICAS], _NEXT] == _END:
            return following, up
        e = up


@kernel
def _let_go(view, run):
    """Forget what is known of a run that nobody was sent any more: the next to be sent it makes it anew."""
    some = 0
    for word in range(view.holds.shape[1]):
        some |= view.holds[run, word]
    if some == 0:
        view.node[run, FIRST] = 0
        view.node[run, _NEXT] = 0
