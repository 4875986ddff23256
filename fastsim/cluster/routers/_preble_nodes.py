"""Kernels of what Preble's released scheduler remembers: which replicas a node is allocated to, and its use.

A node is a run of the router's tree; that a replica is allocated a node is the tree's own bit. A request
counts for its important node, the deepest that has more tokens than all above it. Everything stands in
``view.memory``, as in `_preble_window`: a head, then rows a replica, a request, a node, a node and replica.
At its end there are two masks of replicas.

A node's load, its misses in the window times its prefill time over the replicas it is allocated to, is a
whole number of picoseconds, so that replicas can be told of its changes.
"""

from __future__ import annotations

from fastsim._bits import lowest_bit
from fastsim._jit import kernel
from fastsim.cluster._state import BITS, NONE
from fastsim.cluster.routers._preble_heaps import add, drop, settle
from fastsim.cluster.routers._preble_lists import after, append, first_of, last_of, remove
from fastsim.cluster.routers._preble_rows import (
    ALLOCATED,
    AT,
    BUSY,
    COUNT,
    DOWN,
    FIRST,
    FIRST_HALF,
    FIRST_OUT,
    FIRST_PS,
    IDLE,
    IS_LARGE,
    IS_SLOWED,
    ITS_MISS,
    ITS_NODE,
    ITS_OWN_PS,
    LOAD_PS,
    MISSES,
    N_MOVABLE,
    N_PAIR,
    N_SLOWED,
    NEW_TTFT_PS,
    NEW_TTFTS,
    NEXT,
    NODE_LOAD_PS,
    NODE_PS,
    OLD_TTFT_PS,
    OLD_TTFTS,
    OUTSTANDING,
    REFS,
    SENT,
    SENT_OUT,
    SENT_PS,
    UP,
    USED,
    USES,
    node_row,
    node_tok,
    nth_first,
    nth_sent,
    pair_row,
    pair_table,
    replica_row,
    request_row,
    told_row,
)
from fastsim.cluster.routers.tree import SIZE_BLK, holds_run, lost_run, replicas_of

# --- load ---------------------------------------------------------------------------------------------------


@kernel
def _weigh(view, node):
    """Let all replicas that a node is allocated to have its load as it has become."""
    memory = view.memory
    row = node_row(view, node)
    load_ps = memory[row + MISSES]
    if load_ps > 0:
        load_ps = load_ps * memory[row + NODE_PS] // max(1, memory[row + ALLOCATED])
    change = load_ps - memory[row + NODE_LOAD_PS]
    if change == 0:
        return
    memory[row + NODE_LOAD_PS] = load_ps
    for word in range(view.holds.shape[1]):
        left = view.holds[node, word]
        memory[changed_at(view) + word] |= left
        while left:
            r = word * BITS + lowest_bit(left)
            memory[replica_row(r) + LOAD_PS] += change
            if change < 0:
                settle(view, node, r)
            left &= left - 1


@kernel(inline="always")
def movable(view, row):
    """Whether the node of a row could be moved: several requests have it, and its misses are some load."""
    return view.memory[row + COUNT] > 1 and view.memory[row + MISSES] > 0


@kernel(inline="always")
def relievable(view, word):
    """A word of the mask of replicas that have nodes to move, or a single one whose requests slowed down."""
    return view.memory[view.memory.shape[0] - view.best.shape[0] + word]


@kernel(inline="always")
def heavy_at(view):
    """Start of the mask of replicas that rebalancing has gathered to relieve."""
    return view.memory.shape[0] - 3 * view.best.shape[0]


@kernel(inline="always")
def changed_at(view):
    """Start of the mask of replicas whose load may have changed since it was looked at."""
    return view.memory.shape[0] - 2 * view.best.shape[0]


@kernel(inline="always")
def note_changed(view, r):
    """Note that the load of replica r may have changed."""
    view.memory[changed_at(view) + r // BITS] |= 1 << (r % BITS)


@kernel
def _note_relievable(view, r):
    memory = view.memory
    row = replica_row(r)
    at = memory.shape[0] - view.best.shape[0] + r // BITS
    bit = 1 << (r % BITS)
    if memory[row + N_MOVABLE] > 1 or memory[row + N_SLOWED] > 0:
        memory[at] |= bit
    else:
        memory[at] &= ~bit


@kernel
def _list(view, node, r, there):
    """Put a node among replica r's movable ones, or take it out."""
    memory = view.memory
    if there:
        add(view, node, r)
    else:
        drop(view, node, r)
    if memory[node_row(view, node) + IS_SLOWED]:
        memory[replica_row(r) + N_SLOWED] += 1 if there else -1
    _note_relievable(view, r)


@kernel
def _list_anew(view, node, there):
    """Put a node among the movable ones of all its replicas, or take it out."""
    for word in range(view.holds.shape[1]):
        left = view.holds[node, word]
        while left:
            _list(view, node, word * BITS + lowest_bit(left), there)
            left &= left - 1


@kernel
def _note_slowed(view, node):
    """Note whether the mean time to first token of a node's requests doubled from one half to the next."""
    memory = view.memory
    row = node_row(view, node)
    slowed = 0
    if memory[row + NEW_TTFTS] > 0 and memory[row + OLD_TTFTS] > 0:
        newer_s = memory[row + NEW_TTFT_PS] * 1e-12 / memory[row + NEW_TTFTS]
        older_s = memory[row + OLD_TTFT_PS] * 1e-12 / memory[row + OLD_TTFTS]
        slowed = 1 if newer_s >= 2.0 * older_s else 0
    change = slowed - memory[row + IS_SLOWED]
    if change == 0:
        return
    memory[row + IS_SLOWED] = slowed
    if movable(view, row):
        for word in range(view.holds.shape[1]):
            left = view.holds[node, word]
            while left:
                r = word * BITS + lowest_bit(left)
                left &= left - 1
                memory[replica_row(r) + N_SLOWED] += change
                _note_relievable(view, r)


# --- allocation ---------------------------------------------------------------------------------------------


@kernel
def _used_list(view, node, r):
    """Where the ends of the list of use are that a node belongs in."""
    busy = view.memory[pair_row(view, node, r) + REFS] > 0
    return replica_row(r) + (BUSY if busy else IDLE)


@kernel
def use(view, node, r, refs):
    """Let replica r use a node, and so many requests more have it there."""
    memory = view.memory
    key = node * replicas_of(view) + r
    before = _used_list(view, node, r)
    memory[pair_row(view, node, r) + REFS] += refs
    now = _used_list(view, node, r)
    if before == now and last_of(memory, now) == key:
        return
    remove(memory, before, pair_table(view), N_PAIR, USED, key)
    if holds_run(view, node, r):
        append(memory, now, pair_table(view), N_PAIR, USED, key)


@kernel
def allocate(view, node, r):
    """Allocate a node to replica r."""
    if holds_run(view, node, r):
        return
    memory = view.memory
    row = node_row(view, node)
    key = node * replicas_of(view) + r
    memory[row + ALLOCATED] += 1
    _weigh(view, node)
    memory[replica_row(r) + LOAD_PS] += memory[row + NODE_LOAD_PS]
    note_changed(view, r)
    view.holds[node, r // BITS] |= 1 << (r % BITS)
    view.list[r, SIZE_BLK] += view.run_blk[node]
    append(memory, _used_list(view, node, r), pair_table(view), N_PAIR, USED, key)
    if movable(view, row):
        _list(view, node, r, True)


@kernel
def withdraw(view, node, r):
    """Take a node off replica r."""
    if not holds_run(view, node, r):
        return
    memory = view.memory
    row = node_row(view, node)
    key = node * replicas_of(view) + r
    view.holds[node, r // BITS] &= ~(1 << (r % BITS))
    view.list[r, SIZE_BLK] -= view.run_blk[node]
    memory[replica_row(r) + LOAD_PS] -= memory[row + NODE_LOAD_PS]
    note_changed(view, r)
    memory[row + ALLOCATED] -= 1
    _weigh(view, node)
    remove(memory, _used_list(view, node, r), pair_table(view), N_PAIR, USED, key)
    if movable(view, row):
        _list(view, node, r, False)


@kernel
def _withdraw_all(view, node):
    for word in range(view.holds.shape[1]):
        left = view.holds[node, word]
        while left:
            withdraw(view, node, word * BITS + lowest_bit(left))
            left &= left - 1


@kernel
def note_cache(view, run, r, held_blk):
    """Take the nodes off replica r of which it holds less than when it last reported that run."""
    told = told_row(view, run, r)
    before_blk = view.memory[told]
    view.memory[told] = held_blk
    for part in range(view.part_ptr[run], view.part_ptr[run + 1]):
        if lost_run(view, part, before_blk, held_blk):
            withdraw(view, view.part[part, 0], r)


@kernel
def _move(view, node, source, target):
    """Take a node off one replica for another: as `allocate` and `withdraw`, but its load stays as it is."""
    if holds_run(view, node, target):
        withdraw(view, node, source)
        return
    memory = view.memory
    row = node_row(view, node)
    load_ps = memory[row + NODE_LOAD_PS]
    remove(
        memory,
        _used_list(view, node, source),
        pair_table(view),
        N_PAIR,
        USED,
        node * replicas_of(view) + source,
    )
    append(
        memory,
        _used_list(view, node, target),
        pair_table(view),
        N_PAIR,
        USED,
        node * replicas_of(view) + target,
    )
    for r, sign in ((source, -1), (target, 1)):
        memory[replica_row(r) + LOAD_PS] += sign * load_ps
        note_changed(view, r)
        view.holds[node, r // BITS] ^= 1 << (r % BITS)
        view.list[r, SIZE_BLK] += sign * view.run_blk[node]
        if movable(view, row):
            _list(view, node, r, sign > 0)


@kernel
def move_subtree(view, node, source, target):
    """Reassign a node, and all below it that replica `source` is allocated, to replica `target`."""
    memory = view.memory
    at = node
    descend = True
    while True:
        if descend:
            _move(view, at, source, target)
        below = memory[node_row(view, at) + DOWN] - 1 if descend else NONE
        if below == NONE:
            if at == node:
                return
            below = memory[node_row(view, at) + NEXT] - 1
            if below == NONE:
                at = memory[node_row(view, at) + UP] - 1
                descend = False
                if at == node:
                    return
                continue
        at = below
        descend = holds_run(view, at, source)


# --- the window ---------------------------------------------------------------------------------------------


@kernel
def _change(view, its, by):
    """Add a request to the counts of its important node, or take it off."""
    memory = view.memory
    node = memory[its + ITS_NODE]
    if node == NONE:
        memory[replica_row(memory[its + AT]) + LOAD_PS] += by * memory[its + ITS_OWN_PS]
        note_changed(view, memory[its + AT])
        return
    row = node_row(view, node)
    could = movable(view, row)
    memory[row + COUNT] += by
    if memory[its + ITS_MISS]:
        memory[row + MISSES] += by
        _weigh(view, node)
    if movable(view, row) != could:
        _list_anew(view, node, not could)


@kernel
def count_sent(view, request, r, now):
    """Let a request, whose row is filled in, enter the window, and replica r be allocated its nodes."""
    memory = view.memory
    its = request_row(view, request)
    memory[its + AT] = r
    memory[its + SENT_PS] = now
    memory[nth_sent(view, memory[SENT])] = request
    memory[SENT] += 1
    memory[replica_row(r) + OUTSTANDING] += 1
    note_changed(view, r)
    _change(view, its, 1)
    for place in range(view.path_ptr[request + 1] - 1, view.path_ptr[request] - 1, -1):
        memory[node_row(view, view.path[place]) + USES] += 1
        allocate(view, view.path[place], r)
        use(view, view.path[place], r, 1)


@kernel
def count_first(view, request, now):
    """Note a request's first token."""
    memory = view.memory
    its = request_row(view, request)
    if memory[its + FIRST_PS] > 0:
        return
    memory[its + FIRST_PS] = now
    memory[nth_first(view, memory[FIRST])] = request
    memory[FIRST] += 1
    if memory[its + ITS_NODE] != NONE:
        row = node_row(view, memory[its + ITS_NODE])
        memory[row + NEW_TTFTS] += 1
        memory[row + NEW_TTFT_PS] += now - memory[its + SENT_PS]
        _note_slowed(view, memory[its + ITS_NODE])


@kernel
def count_done(view, request):
    """Note the end of a request."""
    r = view.memory[request_row(view, request) + AT]
    view.memory[replica_row(r) + OUTSTANDING] -= 1
    note_changed(view, r)
    for place in range(view.path_ptr[request + 1] - 1, view.path_ptr[request] - 1, -1):
        use(view, view.path[place], r, -1)


@kernel
def expire(view, now, horizon_ps):
    """Let go what left the window by `now`."""
    memory = view.memory
    while memory[SENT_OUT] < memory[SENT]:
        request = memory[nth_sent(view, memory[SENT_OUT])]
        its = request_row(view, request)
        if memory[its + SENT_PS] + horizon_ps > now:
            break
        memory[SENT_OUT] += 1
        for place in range(view.path_ptr[request], view.path_ptr[request + 1]):
            node = view.path[place]
            memory[node_row(view, node) + USES] -= 1
            if memory[node_row(view, node) + USES] == 0:  # what nobody has used is on no replica
                _withdraw_all(view, node)
        _change(view, its, -1)
    _age(view, now - horizon_ps // 2, FIRST_HALF, FIRST, NEW_TTFTS, -1)
    _age(view, now - horizon_ps, FIRST_OUT, FIRST_HALF, OLD_TTFTS, 0)


@kernel
def _age(view, until, out, end, column, older):
    """Take first tokens up to `until` off one half of the window, and put them into the older one."""
    memory = view.memory
    while memory[out] < memory[end]:
        its = request_row(view, memory[nth_first(view, memory[out])])
        if memory[its + FIRST_PS] > until:
            return
        memory[out] += 1
        if memory[its + ITS_NODE] == NONE:
            continue
        row = node_row(view, memory[its + ITS_NODE])
        memory[row + column] -= 1
        ttft_ps = memory[its + FIRST_PS] - memory[its + SENT_PS]
        memory[row + column + 1] -= ttft_ps
        if older:
            memory[row + OLD_TTFTS] += 1
            memory[row + OLD_TTFT_PS] += ttft_ps
        _note_slowed(view, memory[its + ITS_NODE])


# --- what making room would cost ----------------------------------------------------------------------------


@kernel
def eviction_s(view, request, r, room_tok):
    """Cost M: misses times prefill of the large nodes that replica r would drop to make room, in seconds.

    Nodes without requests there go first, used longest ago first; those with requests are not spared.
    """
    memory = view.memory
    cost_ps = 0
    free_tok = 0
    for ends in (IDLE, BUSY):
        key = first_of(memory, replica_row(r) + ends)
        while key != NONE and free_tok < room_tok:
            node = key // replicas_of(view)
            row = node_row(view, node)
            if memory[row + IS_LARGE]:
                cost_ps += memory[row + NODE_PS] * memory[row + MISSES]
            free_tok += node_tok(view, node)
            key = after(memory, pair_table(view), N_PAIR, USED, key)
    return cost_ps * 1e-12
