"""Where everything stands in ``view.memory`` that Preble's released scheduler remembers; see `_preble_nodes`.

A head, then a row a replica, a request, a node, a node and replica; a heap of nodes a replica; what was last
reported; two queues of requests; and three masks of replicas. Rows begin where cache lines do, and one of a
request is one line: by the time it is looked at again, it is far away.
"""

from __future__ import annotations

from fastsim._jit import kernel
from fastsim.cluster._state import BITS
from fastsim.cluster.routers.tree import BLOCK_TOK, replicas_of, runs_of

# Head: how many entered the queues of requests sent and of first tokens, and how many have left them
SENT, SENT_OUT = 0, 1
FIRST, FIRST_HALF, FIRST_OUT = 2, 3, 4
POLLED, POLLED_OUT = 5, 6  # of the first tokens: counted at the last poll, and no longer counted
POLL, BEST = 7, 8  # number + 1 of the last poll, and the replica it found to hit most
NODES = 9  # nodes that prompts sent so far have
N_HEAD = 16

# A replica's row
LOAD_PS = 0  # of the nodes allocated to it
OUTSTANDING = 1  # requests there now
HIT_TOK, PROMPT_TOK = 2, 3  # at the last poll, of the last seconds
N_TPOT = 4  # times per output token seen
IDLE, BUSY = 5, 7  # lists, two columns each: nodes by last use, without and with requests there
N_MOVABLE = 9  # important nodes allocated to it that several requests have and some missed
N_SLOWED = 10  # how many of them have IS_SLOWED
N_REPLICA = 16

# A request's row
AT, SENT_PS, FIRST_PS = 0, 1, 2
ITS_HIT_TOK, ITS_PROMPT_TOK, ITS_OUTPUT_TOK = 3, 4, 5
ITS_NODE = 6  # its important node, -1 if that is its own end
ITS_MISS = 7  # whether it missed there
ITS_OWN_PS = 7  # the same column, if that is its own end: prefill of it
N_REQUEST = 8

# A node's row
NODE_PS = 0  # time to prefill it
USES = 1  # requests of the window that have it
COUNT, MISSES = 2, 3  # those for which it is the important node; of them, those sent where it was not
NEW_TTFTS, NEW_TTFT_PS, OLD_TTFTS, OLD_TTFT_PS = 4, 5, 6, 7  # their times to first token, by half windows
ALLOCATED = 8  # replicas it is allocated to
IS_LARGE = 9
UP, DOWN, NEXT = 10, 11, 12  # parent, first child, next child of the same parent (+ 1)
SEEN = 13  # its number among the nodes that prompts sent so far have, from 1 on
IS_SLOWED = 14  # whether the mean time to first token doubled from one half window to the next
NODE_LOAD_PS = 15  # its load on each replica that it is allocated to
N_NODE = 16

# The row of a node and a replica
REFS = 0  # requests there now that have it
USED = 1  # two columns: links of IDLE or BUSY
PLACE = 3  # in the heap of the replica's movable nodes, from 1 on, 0 if it is not in it
N_PAIR = 4


def memory_length(params, size) -> int:
    """Integers that all this takes."""
    replicas = N_HEAD + size.replicas * N_REPLICA
    nodes = size.runs * (N_NODE + size.replicas * (N_PAIR + 2))
    told = size.reports * size.replicas
    return replicas + size.requests * (N_REQUEST + 2) + nodes + told + 3 * -(-size.replicas // BITS)


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
    return request_row(view, view.path_ptr.shape[0] - 1) + node * N_NODE


@kernel(inline="always")
def pair_table(view):
    """Start of the rows of nodes and replicas."""
    return node_row(view, runs_of(view))


@kernel(inline="always")
def pair_row(view, node, r):
    """Start of the row of a node and a replica."""
    return pair_table(view) + (node * replicas_of(view) + r) * N_PAIR


@kernel(inline="always")
def heap_row(view, r):
    """Start of replica r's heap of movable nodes, two numbers each."""
    return pair_row(view, runs_of(view), 0) + r * 2 * runs_of(view)


@kernel(inline="always")
def told_row(view, run, r):
    """Where the blocks stand that replica r held of one of the engine's runs by its last report."""
    return heap_row(view, replicas_of(view)) + run * replicas_of(view) + r


@kernel(inline="always")
def nth_sent(view, n):
    """Where the n-th request sent stands."""
    return view.memory.shape[0] - 3 * view.best.shape[0] - 2 * (view.path_ptr.shape[0] - 1) + n


@kernel(inline="always")
def nth_first(view, n):
    """Where the n-th request stands of those that had their first token."""
    return view.memory.shape[0] - 3 * view.best.shape[0] - (view.path_ptr.shape[0] - 1) + n


@kernel(inline="always")
def node_tok(view, node):
    """Tokens of a node."""
    return view.run_blk[node] * view.tree[BLOCK_TOK]
