"""Kernels of hash rings: where a key belongs, whatever the load (Karger et al., STOC 1997).

Every replica has some virtual nodes on a circle; a key belongs to the node that comes next. Replicas are
known by their number here and by their address in real systems, and hashes are `fastsim.rng.mix64`: the rings
have the structure of their systems', not their very points.

A ring is made at its first use, and anew when replicas join, in ``view.memory[:ring_room(...)]``.
"""

from __future__ import annotations

from fastsim._jit import kernel
from fastsim.cluster.routers.registry import Tree
from fastsim.cluster.routers.sort import sort
from fastsim.cluster.routers.tree import KEEP_ALL
from fastsim.cluster.routers.view import most_replicas, replica_room, session
from fastsim.rng import hash_bits

_FOR = 0  # place in the memory: replicas that the ring was made for
_NODES = 1  # the first node: its place on the circle, then its replica
_CIRCLE, _REPLICA = 43, 20  # bits of the two


def ring_room(replicas: int, nodes: int) -> int:
    """Length of a ring with so many nodes a replica."""
    return _NODES + replicas * nodes


@kernel
def _make_ring(view, nodes):
    memory = view.memory
    replicas = view.load.shape[0]
    place = _NODES
    for r in range(replicas):
        for k in range(nodes):
            memory[place] = hash_bits((r << 32) | k, _CIRCLE) << _REPLICA | r
            place += 1
    sort(memory, _NODES, place)
    memory[_FOR] = replicas


@kernel
def next_node(view, nodes, key):
    """Place in the memory of the node that a key belongs to; keys are not negative."""
    replicas = view.load.shape[0]
    if view.memory[_FOR] != replicas:
        _make_ring(view, nodes)
    wanted = hash_bits(-1 - key, _CIRCLE) << _REPLICA
    low = _NODES
    end = _NODES + replicas * nodes
    high = end
    while low < high:
        middle = (low + high) // 2
        if view.memory[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low if low < end else _NODES


@kernel(inline="always")
def node_after(view, nodes, place):
    """Place of the node after another, clockwise."""
    place += 1
    return place if place < _NODES + view.load.shape[0] * nodes else _NODES


@kernel(inline="always")
def node_owner(view, place):
    """Replica of a node."""
    return view.memory[place] & ((1 << _REPLICA) - 1)


@kernel
def ring_owner(view, nodes, key):
    """Replica that a key belongs to."""
    return node_owner(view, next_node(view, nodes, key))


@kernel(inline="always")
def session_key(view, request):
    """Key of the request's session; where that is unknown, one of the request's own."""
    known = session(view)
    return 2 * known + 1 if known >= 0 else 2 * request


def unkept_tree(params: object, cluster: object) -> Tree:
    """A tree by which prompts are told apart, token by token, and nothing is remembered."""
    return Tree(KEEP_ALL, block_tok=1)


def prefix_room(replicas: int, nodes: int, runs: int) -> int:
    """Length of a ring and of what `prefix_key` keeps behind it."""
    return ring_room(replica_room(replicas), nodes) + 2 * runs


@kernel
def _first_requests(view, at):
    """Note for each run the first request whose prompt has it, and the first that ends with it."""
    for request in range(view.path_ptr.shape[0] - 2, -1, -1):
        end = view.path_ptr[request + 1]
        for place in range(view.path_ptr[request], end):
            view.memory[at + 2 * view.path[place]] = request + 1
        if view.tail_blk[request] == 0:
            view.memory[at + 2 * view.path[end - 1] + 1] = request + 1


@kernel
def prefix_key(view, request, tokens, nodes):
    """Key of the prompt's first tokens, or of all if it is shorter: the first request that has the same.

    Needs `unkept_tree` and `prefix_room`. Prompts have the same first tokens exactly if they have the run in
    common on which those end. All routers find the same key, as they would by hashing the tokens.
    """
    at = _NODES + most_replicas(view) * nodes
    depth = 0
    end = view.path_ptr[request + 1]
    for place in range(view.path_ptr[request], end):
        run = view.path[place]
        if view.memory[at + 2 * run] == 0:
            _first_requests(view, at)
        depth += view.run_blk[run]
        if depth >= tokens:
            return view.memory[at + 2 * run] - 1
    if view.tail_blk[request] == 0:
        return view.memory[at + 2 * view.path[end - 1] + 1] - 1
    return request
