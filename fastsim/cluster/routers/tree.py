"""Kernels of a router's own memory: which prompts it sent where, and what it has forgotten since.

All prompts are known beforehand as lists of runs (prefix.py), so the tree is static: a bit a
run and replica says that a prompt through this run was sent there. What may be forgotten has an entry, in
lists from oldest to newest. A prompt always ends with a run; what no other prompt has is its tail, which
cannot be matched but takes room.

How a tree forgets (``view.tree[KEEP]``):

* ``KEEP_ALL``: never;
* ``KEEP_BLOCKS``: a list a replica of so many blocks; the block used longest ago goes first, and a prompt
  uses its blocks from the root down, so its first block goes first; ``view.marks``, if the tree has them,
  are the replicas that still have the end of a run;
* ``KEEP_LEAVES``: a list a replica, cut to its blocks only when asked to: whole leaves go (`leaves`);
* ``KEEP_TIME``: one list; what was not used for so long goes;
* ``KEEP_SHARED``: one list of so many blocks for all replicas together, and by time.
"""

from __future__ import annotations

from fastsim._jit import kernel
from fastsim.cluster._index import clear_matches, set_all
from fastsim.cluster._masks import fill, least_loaded_of
from fastsim.cluster._state import BITS, NONE
from fastsim.cluster._table import drop_slot, find_slot, get, put
from fastsim.cluster.routers.view import NOW_PS

# View.tree
KEEP, BLOCK_TOK, RUNS, REPLICAS, CAPACITY_BLK, TTL_PS = 0, 1, 2, 3, 4, 5
TOP, SPARE, LIVE, EPOCH = 6, 7, 8, 9  # entries ever used, head of the free ones, in use; counter of uses
WANTED, LISTED = 10, 11  # leaves.py: entries there would have to be, 0 for now; whether there are any
N_TREE = 12
KEEP_ALL, KEEP_BLOCKS, KEEP_LEAVES, KEEP_TIME, KEEP_SHARED = 0, 1, 2, 3, 4

# View.entry
KEY, NEWER, OLDER, STAMP, BLOCKS, CUT, CHILDREN, UP = 0, 1, 2, 3, 4, 5, 6, 7
N_ENTRY = 8
# View.list
OLDEST, NEWEST, SIZE_BLK, COUNT = 0, 1, 2, 3


@kernel(inline="always")
def replicas_of(view):
    """Replicas that a tree with a list each is of.

    A length, which never changes, as the compiler knows: of what stands in ``view.tree`` it does not, and
    looks again after each write to some other array.
    """
    return view.list.shape[0]


@kernel(inline="always")
def runs_of(view):
    """Runs of a tree; a length, as above."""
    return view.run_blk.shape[0]


# --- matches ------------------------------------------------------------------------------------------------


@kernel
def tree_match(view, request):
    """Longest prefix of the prompt that one replica was sent, in blocks; ``view.best`` has those replicas.

    All replicas are in ``view.best`` if nobody was sent any.
    """
    best = view.best
    holds = view.holds
    fill(best, view.load.shape[0])
    depth = 0
    for place in range(view.path_ptr[request], view.path_ptr[request + 1]):
        run = view.path[place]
        some = 0
        for word in range(best.shape[0]):
            some |= best[word] & holds[run, word]
        if some == 0:
            break
        for word in range(best.shape[0]):
            best[word] &= holds[run, word]
        depth += view.run_blk[run]
    return depth


@kernel
def tree_nearest(view, request):
    """Least loaded replica of those with the longest match, and the match in blocks."""
    depth = tree_match(view, request)
    return least_loaded_of(view.load, view.level, view.best), depth


@kernel
def tree_matches(view, request):
    """Fill ``view.match``: tokens of the prompt that each replica was sent, from its start without a gap."""
    match = view.match
    best = view.best
    holds = view.holds
    clear_matches(match, view.found)
    fill(best, match.shape[0])
    tokens = 0
    for place in range(view.path_ptr[request], view.path_ptr[request + 1]):
        run = view.path[place]
        some = 0
        for word in range(best.shape[0]):
            gone = best[word] & ~holds[run, word]
            if tokens > 0 and gone:
                set_all(match, word, gone, tokens)
            best[word] &= holds[run, word]
            view.found[word] |= best[word]
            some |= best[word]
        if some == 0:
            return
        tokens += view.run_blk[run] * view.tree[BLOCK_TOK]
    for word in range(best.shape[0]):
        if tokens > 0 and best[word]:
            set_all(match, word, best[word], tokens)


@kernel(inline="always")
def anybody_holds(view, run):
    """Whether any replica was sent a prompt through a run."""
    some = 0
    for word in range(view.holds.shape[1]):
        some |= view.holds[run, word]
    return some != 0


@kernel
def deepest(view, request):
    """Follow the prompt as far as anybody was sent it; returns the last run (or -1) and its end in blocks."""
    last = NONE
    depth = 0
    for place in range(view.path_ptr[request], view.path_ptr[request + 1]):
        run = view.path[place]
        if not anybody_holds(view, run):
            break
        last = run
        depth += view.run_blk[run]
    return last, depth


@kernel(inline="always")
def holds_run(view, run, r):
    """Whether replica r was sent a prompt through a run."""
    return view.holds[run, r // BITS] >> (r % BITS) & 1 == 1


@kernel(inline="always")
def lost_run(view, part, before_blk, held_blk):
    """Whether less of a run is held than before, where that much of the engine's run is; `part` is a row."""
    return held_blk < before_blk and held_blk < view.part[part, 2] and before_blk > view.part[part, 1]


# --- entries ------------------------------------------------------------------------------------------------


@kernel
def blocks_sent(view, run, r):
    """Blocks of a run that are still known to have been sent to a replica; for trees with entries."""
    e = get(view.where, run * view.tree[REPLICAS] + r, NONE)
    return 0 if e == NONE else view.entry[e, BLOCKS] - view.entry[e, CUT]


@kernel
def tree_has_room(view, request):
    """Whether there is room to remember one more prompt."""
    if view.tree[KEEP] == KEEP_ALL:
        return True
    most = view.path_ptr[request + 1] - view.path_ptr[request] + 1
    if view.tree[KEEP] == KEEP_LEAVES and view.tree[LISTED] == 0:
        if view.tree[WANTED] == 0:
            return True
        most += view.tree[WANTED]
    free = view.entry.shape[0] - view.tree[LIVE]
    return free >= most and view.where.shape[0] >= 2 * (view.tree[LIVE] + most)


@kernel
def new_entry(view, key, blocks, at):
    """Make an entry that can be found by its key, of list `at` but not yet in it; returns it."""
    e = _free_entry(view, key, blocks, at)
    put(view.where, key, e)
    return e


@kernel
def _free_entry(view, key, blocks, at):
    tree = view.tree
    entry = view.entry
    e = tree[SPARE]
    if e != NONE:
        tree[SPARE] = entry[e, NEWER]
    else:
        e = tree[TOP]
        tree[TOP] = e + 1
    tree[LIVE] += 1
    entry[e, KEY] = key
    entry[e, BLOCKS] = blocks
    entry[e, CUT] = 0
    entry[e, CHILDREN] = 0
    entry[e, UP] = NONE
    view.list[at, SIZE_BLK] += blocks
    view.list[at, COUNT] += 1
    return e


@kernel
def append_entry(view, at, e):
    """Make an entry the newest of a list."""
    entry = view.entry
    last = view.list[at, NEWEST]
    entry[e, OLDER] = last
    entry[e, NEWER] = NONE
    if last == NONE:
        view.list[at, OLDEST] = e
    else:
        entry[last, NEWER] = e
    view.list[at, NEWEST] = e


@kernel
def prepend_entry(view, at, e):
    """Make an entry the oldest of a list."""
    entry = view.entry
    first = view.list[at, OLDEST]
    entry[e, NEWER] = first
    entry[e, OLDER] = NONE
    if first == NONE:
        view.list[at, NEWEST] = e
    else:
        entry[first, OLDER] = e
    view.list[at, OLDEST] = e


@kernel
def unlink_entry(view, at, e):
    """Take an entry out of a list."""
    entry = view.entry
    older = entry[e, OLDER]
    newer = entry[e, NEWER]
    if older == NONE:
        view.list[at, OLDEST] = newer
    else:
        entry[older, NEWER] = newer
    if newer == NONE:
        view.list[at, NEWEST] = older
    else:
        entry[newer, OLDER] = older


@kernel(inline="always")
def _list_of(view, key):
    """The list an entry is in: its replica's, or the only one."""
    return key % view.tree[REPLICAS] if view.list.shape[0] > 1 else 0


@kernel
def forget(view, e):
    """Remove an entry; nobody is known to have been sent it any more."""
    tree = view.tree
    entry = view.entry
    key = entry[e, KEY]
    at = _list_of(view, key)
    unlink_entry(view, at, e)
    view.list[at, SIZE_BLK] -= entry[e, BLOCKS] - entry[e, CUT]
    view.list[at, COUNT] -= 1
    if key < tree[RUNS] * tree[REPLICAS] or tree[KEEP] == KEEP_LEAVES:
        drop_slot(view.where, find_slot(view.where, key))
    if entry[e, UP] != NONE:
        entry[entry[e, UP], CHILDREN] -= 1
    entry[e, NEWER] = tree[SPARE]
    tree[SPARE] = e
    tree[LIVE] -= 1
    if entry[e, CUT] > 0:
        _mark(view, key, False)
    _clear(view, key)


@kernel
def _mark(view, key, on):
    """Note whether an entry's replica has lost the start of the run only."""
    run = key // view.tree[REPLICAS]
    if view.tree[KEEP] != KEEP_BLOCKS or run >= view.marks.shape[0]:
        return
    r = key - run * view.tree[REPLICAS]
    bit = 1 << (r % BITS)
    if on:
        view.marks[run, r // BITS] |= bit
    else:
        view.marks[run, r // BITS] &= ~bit


@kernel
def _clear(view, key):
    """Take the bit of an entry's replica off its run, or all bits where an entry stands for all replicas."""
    run = key // view.tree[REPLICAS]
    if run >= view.tree[RUNS]:
        return  # a tail: nobody can match it
    if view.tree[KEEP] == KEEP_SHARED:
        for word in range(view.holds.shape[1]):
            view.holds[run, word] = 0
        return
    r = key - run * view.tree[REPLICAS]
    view.holds[run, r // BITS] &= ~(1 << (r % BITS))


# --- remembering --------------------------------------------------------------------------------------------


@kernel
def remember(view, request, r):
    """Remember that the prompt of `request` was sent to replica r, and forget what that pushes out."""
    tree = view.tree
    keep = tree[KEEP]
    word = r // BITS
    bit = 1 << (r % BITS)
    replicas = tree[REPLICAS]
    if keep >= KEEP_TIME:
        forget_old(view, view.prompt[NOW_PS])
    begin = view.path_ptr[request]
    end = view.path_ptr[request + 1]
    who = 0 if keep == KEEP_SHARED else r
    for place in range(begin, end):
        run = view.path[place]
        if keep == KEEP_ALL:
            if view.holds[run, word] & bit == 0:
                view.list[r, SIZE_BLK] += view.run_blk[run]
        else:
            _use(view, run * replicas + who, view.run_blk[run])
        view.holds[run, word] |= bit
    tail_blk = view.tail_blk[request]
    if tail_blk > 0:
        if keep == KEEP_ALL:
            view.list[r, SIZE_BLK] += tail_blk
        elif keep != KEEP_TIME:  # it takes room, which nobody counts there
            _use_tail(view, (tree[RUNS] + request) * replicas + who, tail_blk)
    if keep in (KEEP_BLOCKS, KEEP_SHARED):
        _push_out(view, who if keep == KEEP_BLOCKS else 0)


@kernel
def _use(view, key, blocks):
    """Make an entry the newest of its list, adding it if need be."""
    entry = view.entry
    at = _list_of(view, key)
    e = get(view.where, key, NONE)
    if e == NONE:
        e = new_entry(view, key, blocks, at)
    else:
        view.list[at, SIZE_BLK] += entry[e, CUT]
        entry[e, CUT] = 0
        unlink_entry(view, at, e)
    append_entry(view, at, e)
    entry[e, STAMP] = view.prompt[NOW_PS]


@kernel
def _use_tail(view, key, blocks):
    """Add the entry of a tail, which nobody will look for: it takes room until it is the oldest."""
    at = _list_of(view, key)
    e = _free_entry(view, key, blocks, at)
    append_entry(view, at, e)
    view.entry[e, STAMP] = view.prompt[NOW_PS]


@kernel
def _push_out(view, at):
    """Forget the oldest blocks of a list that are too many."""
    entry = view.entry
    while view.list[at, SIZE_BLK] > view.tree[CAPACITY_BLK]:
        e = view.list[at, OLDEST]
        over = view.list[at, SIZE_BLK] - view.tree[CAPACITY_BLK]
        if entry[e, BLOCKS] - entry[e, CUT] > over:
            if entry[e, CUT] == 0:
                _clear(view, entry[e, KEY])
                _mark(view, entry[e, KEY], True)
            entry[e, CUT] += over
            view.list[at, SIZE_BLK] -= over
        else:
            forget(view, e)


@kernel
def forget_old(view, now_ps):
    """Forget what was not used for the tree's time to live."""
    while view.list[0, OLDEST] != NONE:
        e = view.list[0, OLDEST]
        if view.entry[e, STAMP] + view.tree[TTL_PS] > now_ps:
            return
        forget(view, e)
