"""Kernels of what Preble's global scheduler remembers of the last H seconds, per replica, node and request.

A node is a run of the router's tree. Everything stands in ``view.memory``, all 0 at the start: a head, then a
row a replica, a row a request, a row a node, a row a node and replica, and what was last reported. Times are
whole picoseconds, so that what is added at an assignment is exactly what is taken off when it leaves the
window, and a sum never depends on the order. Requests leave the window in the order in which they entered it,
which a queue keeps; each costs as much as its path is long, once.
"""

from __future__ import annotations

from fastsim._jit import kernel
from fastsim.cluster._state import BITS, NONE
from fastsim.cluster.routers._preble_lists import after, append, first_of, remove
from fastsim.cluster.routers.tree import BLOCK_TOK, replicas_of, runs_of

# Head: how many entered each queue, and how many of them have left it
SENT, SENT_OUT = 0, 1
FIRST, FIRST_HALF, FIRST_OUT = 2, 3, 4
DONE, DONE_OUT = 5, 6
N_HEAD = 8

# A replica's row: requests of the window and their sums
COUNT, PREFILL_PS, DECODE_PS, HIT_TOK, PROMPT_TOK = 0, 1, 2, 3, 4
N_DONE, OUTPUT_TOK = 5, 6  # of the window: answers that have ended, and their tokens
OUTSTANDING, DECODING = 7, 8  # requests of this router there now, and those of them past the first token
LRU_OLD = 9  # and the column after: the list of its nodes in the order of use
LRU_TOK = 11  # their tokens
N_REPLICA = 12

# A request's row
AT, SENT_PS, ITS_PREFILL_PS, ITS_DECODE_PS, ITS_HIT_TOK, ITS_PROMPT_TOK, ITS_OUTPUT_TOK = 0, 1, 2, 3, 4, 5, 6
ITS_KEY = 7  # its key node, or -1
FIRST_PS, WAIT_PS, DONE_PS = 8, 9, 10
NTH_SENT, NTH_FIRST, NTH_DONE = 11, 12, 13  # row n: the n-th request of each queue
N_REQUEST = 14

# A node's row
NODE_PS = 0  # time to prefill it behind what is above it; 0 if not seen yet
SEEN_BY = 1  # last request that has it, + 1
KEY_COUNT = 2  # requests of the window whose key node it is
NEW_WAITS, NEW_WAIT_PS, OLD_WAITS, OLD_WAIT_PS = 3, 4, 5, 6  # their waits, in the window's halves
GROWN_PS = 7  # instant + 1 at which it was last given another replica, 0 if it has not
SPLIT = 8  # how often its subtree was split
HOME, HOME_SPLIT = 9, 10  # as a child of a split node: its replica, in which split
N_NODE = 11  # and after that a mask of the replicas that share the node

# The row of a node and a replica
USES = 0  # requests of the window that share the node there
OLDER = 1  # and the column after: its neighbours in the order of use
SHARE_PS = 3  # work given to the replica since the node's subtree was split
TO_COMPUTE = 4  # requests sent there that share the node and have not ended: it is held or will be computed
N_PAIR = 5


def memory_length(params, size) -> int:
    """Integers that all this takes."""
    words = -(-size.replicas // BITS)
    nodes = size.runs * (N_NODE + words + size.replicas * N_PAIR)
    told = size.reports * size.replicas
    return N_HEAD + size.replicas * N_REPLICA + size.requests * N_REQUEST + nodes + told


@kernel(inline="always")
def replica_row(r):
    """Start of replica r's row."""
    return N_HEAD + r * N_REPLICA


@kernel(inline="always")
def request_row(view, i):
    """Start of request i's row."""
    return N_HEAD + replicas_of(view) * N_REPLICA + i * N_REQUEST


@kernel(inline="always")
def node_row(view, node):
    """Start of a node's row."""
    return request_row(view, view.path_ptr.shape[0] - 1) + node * (N_NODE + view.holds.shape[1])


@kernel(inline="always")
def pair_row(view, key):
    """Start of the row of a node and a replica, whose key is node * replicas + replica."""
    return node_row(view, runs_of(view)) + key * N_PAIR


@kernel(inline="always")
def told_row(view, run, r):
    """Where the blocks stand that replica r held of one of the engine's runs by its last report."""
    return pair_row(view, runs_of(view) * replicas_of(view)) + run * replicas_of(view) + r


@kernel(inline="always")
def node_tok(view, node):
    """Tokens of a node."""
    return view.run_blk[node] * view.tree[BLOCK_TOK]


# --- the order in which a replica used its nodes ------------------------------------------------------------


@kernel
def unlink(view, node, r):
    """Take a node out of replica r's order of use, if it is there."""
    row = replica_row(r)
    key = node * replicas_of(view) + r
    if remove(view.memory, row + LRU_OLD, pair_row(view, 0), N_PAIR, OLDER, key):
        view.memory[row + LRU_TOK] -= node_tok(view, node)


@kernel
def _append(view, node, r):
    row = replica_row(r)
    append(view.memory, row + LRU_OLD, pair_row(view, 0), N_PAIR, OLDER, node * replicas_of(view) + r)
    view.memory[row + LRU_TOK] += node_tok(view, node)


@kernel
def use_path(view, request, r):
    """Let replica r use the nodes of a prompt, the deepest first, and push out what is beyond its memory."""
    for place in range(view.path_ptr[request + 1] - 1, view.path_ptr[request] - 1, -1):
        node = view.path[place]
        unlink(view, node, r)
        _append(view, node, r)
    memory = view.memory
    row = replica_row(r)
    most_tok = view.kv_blocks[0] * view.tree[BLOCK_TOK]
    while memory[row + LRU_TOK] > most_tok:
        unlink(view, first_of(memory, row + LRU_OLD) // replicas_of(view), r)


@kernel
def eviction_s(view, request, r, room_tok, full):
    """Cost M: what replica r would have to compute again if it made room, in seconds of GPU time.

    It drops the nodes used longest ago, those of the request itself excepted, until `room_tok` tokens are
    free; each costs its prefill times the share of the window's requests there that have it.
    """
    memory = view.memory
    row = replica_row(r)
    requests = memory[row + COUNT]
    if requests == 0:
        return 0.0
    free_tok = 0 if full else view.kv_blocks[0] * view.tree[BLOCK_TOK] - memory[row + LRU_TOK]
    cost_ps = 0
    key = first_of(memory, row + LRU_OLD)
    while key != NONE and free_tok < room_tok:
        node = key // replicas_of(view)
        pair = pair_row(view, key)
        row_of_node = node_row(view, node)
        if memory[row_of_node + SEEN_BY] != request + 1:
            cost_ps += memory[row_of_node + NODE_PS] * memory[pair + USES]
            free_tok += node_tok(view, node)
        key = after(memory, pair_row(view, 0), N_PAIR, OLDER, key)
    return cost_ps * 1e-12 / requests


# --- the window ---------------------------------------------------------------------------------------------


@kernel
def count_sent(view, request, r, now):
    """Let a request, whose row is filled in, enter the window of replica r."""
    memory = view.memory
    its = request_row(view, request)
    row = replica_row(r)
    memory[its + AT] = r
    memory[its + SENT_PS] = now
    memory[request_row(view, memory[SENT]) + NTH_SENT] = request
    memory[SENT] += 1
    memory[row + OUTSTANDING] += 1
    _change(view, request, its, row, 1)
    _count_to_compute(view, request, r, 1)


@kernel
def _count_to_compute(view, request, r, by):
    """Add a request to those in flight that share its nodes on replica r, or take it off."""
    for place in range(view.path_ptr[request], view.path_ptr[request + 1]):
        view.memory[pair_row(view, view.path[place] * replicas_of(view) + r) + TO_COMPUTE] += by


@kernel(inline="always")
def to_be_computed(view, node, r):
    """Whether a request in flight on replica r shares a node: then it is there, or will be there again."""
    return view.memory[pair_row(view, node * replicas_of(view) + r) + TO_COMPUTE] > 0


@kernel
def _change(view, request, its, row, by):
    """Add a request to the sums of its replica and of its nodes, or take it off."""
    memory = view.memory
    memory[row + COUNT] += by
    memory[row + PREFILL_PS] += by * memory[its + ITS_PREFILL_PS]
    memory[row + DECODE_PS] += by * memory[its + ITS_DECODE_PS]
    memory[row + HIT_TOK] += by * memory[its + ITS_HIT_TOK]
    memory[row + PROMPT_TOK] += by * memory[its + ITS_PROMPT_TOK]
    r = memory[its + AT]
    for place in range(view.path_ptr[request], view.path_ptr[request + 1]):
        memory[pair_row(view, view.path[place] * replicas_of(view) + r) + USES] += by
    key_node = memory[its + ITS_KEY]
    if key_node != NONE:
        key_row = node_row(view, key_node)
        memory[key_row + KEY_COUNT] += by
        if memory[key_row + KEY_COUNT] == 0:
            _stop_sharing(view, key_row)


@kernel
def _stop_sharing(view, row):
    """Forget that several replicas share a node: nobody has asked for it in the window."""
    view.memory[row + GROWN_PS] = 0
    for word in range(view.holds.shape[1]):
        view.memory[row + N_NODE + word] = 0


@kernel
def count_first(view, request, now, wait_ps):
    """Note a request's first token, and how long it had queued.

    One that starts anew, as its replica did, has its first token only once.
    """
    memory = view.memory
    its = request_row(view, request)
    if memory[its + FIRST_PS] > 0:
        return
    memory[replica_row(memory[its + AT]) + DECODING] += 1
    memory[its + FIRST_PS] = now
    memory[its + WAIT_PS] = wait_ps
    memory[request_row(view, memory[FIRST]) + NTH_FIRST] = request
    memory[FIRST] += 1
    if memory[its + ITS_KEY] != NONE:
        key_row = node_row(view, memory[its + ITS_KEY])
        memory[key_row + NEW_WAITS] += 1
        memory[key_row + NEW_WAIT_PS] += memory[its + WAIT_PS]


@kernel
def count_done(view, request, now):
    """Note the end of a request."""
    memory = view.memory
    its = request_row(view, request)
    row = replica_row(memory[its + AT])
    _count_to_compute(view, request, memory[its + AT], -1)
    memory[its + DONE_PS] = now
    memory[request_row(view, memory[DONE]) + NTH_DONE] = request
    memory[DONE] += 1
    memory[row + OUTSTANDING] -= 1
    memory[row + DECODING] -= 1
    memory[row + N_DONE] += 1
    memory[row + OUTPUT_TOK] += memory[its + ITS_OUTPUT_TOK]


@kernel
def expire(view, now, horizon_ps):
    """Let go what left the window by `now`."""
    memory = view.memory
    while memory[SENT_OUT] < memory[SENT]:
        request = memory[request_row(view, memory[SENT_OUT]) + NTH_SENT]
        its = request_row(view, request)
        if memory[its + SENT_PS] + horizon_ps > now:
            break
        memory[SENT_OUT] += 1
        _change(view, request, its, replica_row(memory[its + AT]), -1)
    while memory[DONE_OUT] < memory[DONE]:
        its = request_row(view, memory[request_row(view, memory[DONE_OUT]) + NTH_DONE])
        if memory[its + DONE_PS] + horizon_ps > now:
            break
        memory[DONE_OUT] += 1
        row = replica_row(memory[its + AT])
        memory[row + N_DONE] -= 1
        memory[row + OUTPUT_TOK] -= memory[its + ITS_OUTPUT_TOK]
    _age_waits(view, now, horizon_ps)


@kernel
def _age_waits(view, now, horizon_ps):
    """Move waits to the window's older half, and out of it."""
    memory = view.memory
    while memory[FIRST_HALF] < memory[FIRST]:
        its = request_row(view, memory[request_row(view, memory[FIRST_HALF]) + NTH_FIRST])
        if memory[its + FIRST_PS] + horizon_ps // 2 > now:
            break
        memory[FIRST_HALF] += 1
        if memory[its + ITS_KEY] != NONE:
            row = node_row(view, memory[its + ITS_KEY])
            memory[row + NEW_WAITS] -= 1
            memory[row + NEW_WAIT_PS] -= memory[its + WAIT_PS]
            memory[row + OLD_WAITS] += 1
            memory[row + OLD_WAIT_PS] += memory[its + WAIT_PS]
    while memory[FIRST_OUT] < memory[FIRST_HALF]:
        its = request_row(view, memory[request_row(view, memory[FIRST_OUT]) + NTH_FIRST])
        if memory[its + FIRST_PS] + horizon_ps > now:
            break
        memory[FIRST_OUT] += 1
        if memory[its + ITS_KEY] != NONE:
            row = node_row(view, memory[its + ITS_KEY])
            memory[row + OLD_WAITS] -= 1
            memory[row + OLD_WAIT_PS] -= memory[its + WAIT_PS]


# --- the load L ---------------------------------------------------------------------------------------------


@kernel
def mean_output_tok(view, r, of_all, output_tok):
    """Mean length of the answers that ended in the window; `output_tok` if none did.

    Of those that ended on replica r, or of all if `of_all` says so.
    """
    ended = 0
    total_tok = 0
    first, last = (0, replicas_of(view)) if of_all else (r, r + 1)
    for k in range(first, last):
        ended += view.memory[replica_row(k) + N_DONE]
        total_tok += view.memory[replica_row(k) + OUTPUT_TOK]
    return total_tok / ended if ended > 0 else output_tok


@kernel
def update_loads(view, of_all, output_tok):
    """Write load L of each replica, in seconds of GPU time, to ``view.real``."""
    mean_tok = mean_output_tok(view, 0, True, output_tok) if of_all else 0.0
    for r in range(view.load.shape[0]):
        row = replica_row(r)
        if not of_all:
            mean_tok = mean_output_tok(view, r, False, output_tok)
        decode_s = view.memory[row + DECODE_PS] * 1e-12
        view.real[r] = view.memory[row + PREFILL_PS] * 1e-12 + mean_tok * decode_s
