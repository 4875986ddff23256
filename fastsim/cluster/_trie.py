"""Kernels that compile prompts into a trie: unbranched stretches are single nodes, whatever their length.

Prompts come as symbols (each stands for a known number of tokens). The trie is a radix tree over symbols;
turned into blocks, the blocks of a node are those whose last token lies in it, because two prompts have
block k in common exactly if they have the tokens up to its end in common.
"""

from __future__ import annotations

from fastsim._jit import kernel
from fastsim.cluster._table import get, put

# columns of a node
FIRST, LENGTH = 0, 1  # its symbols, as a stretch of the symbols of the first prompt that had them
PARENT = 2
BEGIN_TOK, END_TOK = 3, 4  # depth in tokens
VISITS = 5  # prompts that run through it
RUN = 6  # number of its run, or -1
N_NODE = 7


@kernel(inline="always")
def _child_key(node, symbol):
    """A key of the table of children. Symbols are dense, below 2^32; nodes are fewer than 2^30."""
    return (node << 32) | symbol


@kernel
def _add_node(node, count, first, length, parent, begin_tok, end_tok):
    node[count, FIRST] = first
    node[count, LENGTH] = length
    node[count, PARENT] = parent
    node[count, BEGIN_TOK] = begin_tok
    node[count, END_TOK] = end_tok
    node[count, VISITS] = 0
    node[count, RUN] = -1
    return count


@kernel
def _split_node(node, child, symbols, table, count, at, depth_tok):
    """Put a new node above `child` that takes its first `at` symbols, down to token depth `depth_tok`."""
    parent = node[child, PARENT]
    first = node[child, FIRST]
    upper = _add_node(node, count, first, at, parent, node[child, BEGIN_TOK], depth_tok)
    put(table, _child_key(parent, symbols[first]), upper)
    node[child, FIRST] = first + at
    node[child, LENGTH] -= at
    node[child, PARENT] = upper
    node[child, BEGIN_TOK] = depth_tok
    put(table, _child_key(upper, symbols[first + at]), child)
    return upper


@kernel
def build(ptr, symbols, symbol_tok, single, node, table, end, known_tok):
    """Insert all prompts in order.

    Parameters
    ----------
    ptr, symbols, symbol_tok : int64[n + 1], int64[m], int64[symbols]
        Prompts as stretches of symbols, and the tokens of each symbol.
    single : int
        1 to make every symbol a node of its own (segments that are cached as a whole).
    node, table : int64[2 n + 2 (or m + 1), N_NODE], int64[slots, 2]
        Out: the nodes, node 0 is the root; scratch for the children, all zero.
    end : int64[n]
        Out: the node at which each prompt ends.
    known_tok : int64[n]
        Out: tokens of each prompt that were the prefix of an earlier one.

    Returns
    -------
    int
        Nodes made.
    """
    count = _add_node(node, 0, 0, 0, -1, 0, 0) + 1
    for i in range(ptr.shape[0] - 1):
        at = 0  # node
        place = ptr[i]
        stop = ptr[i + 1]
        depth_tok = 0
        known_tok[i] = -1
        while place < stop:
            child = get(table, _child_key(at, symbols[place]), -1)
            if child < 0:
                if known_tok[i] < 0:
                    known_tok[i] = depth_tok
                length = 1 if single else stop - place
                begin_tok = depth_tok
                for k in range(place, place + length):
                    depth_tok += symbol_tok[symbols[k]]
                child = _add_node(node, count, place, length, at, begin_tok, depth_tok)
                count += 1
                put(table, _child_key(at, symbols[place]), child)
                place += length
            else:
                first = node[child, FIRST]
                most = min(node[child, LENGTH], stop - place)
                same = 0
                while same < most and symbols[first + same] == symbols[place + same]:
                    depth_tok += symbol_tok[symbols[place + same]]
                    same += 1
                place += same
                if same < node[child, LENGTH]:
                    child = _split_node(node, child, symbols, table, count, same, depth_tok)
                    count += 1
            at = child
        if known_tok[i] < 0:
            known_tok[i] = depth_tok
        end[i] = at
    return count


@kernel
def count_visits(node, end):
    """Count the prompts that run through each node."""
    for i in range(end.shape[0]):
        at = end[i]
        while at > 0:
            node[at, VISITS] += 1
            at = node[at, PARENT]


@kernel
def number_runs(node, end, block, all_nodes, path_len, shared_blk):
    """Number the nodes that hold blocks which more than one prompt has, in the order prompts meet them.

    Parameters
    ----------
    node, end : int64[nodes, N_NODE], int64[n]
        From `build`, visits counted.
    block : int
        Tokens a block.
    all_nodes : int
        1 to number every node that holds blocks.
    path_len, shared_blk : int64[n]
        Out: runs on each prompt's path, and the blocks on them.

    Returns
    -------
    int
        Runs.
    """
    runs = 0
    for i in range(end.shape[0]):
        at = end[i]
        while at > 0:
            blocks = node[at, END_TOK] // block - node[at, BEGIN_TOK] // block
            if blocks > 0 and (all_nodes or node[at, VISITS] > 1):
                if node[at, RUN] < 0:
                    node[at, RUN] = runs
                    runs += 1
                path_len[i] += 1
                shared_blk[i] += blocks
            at = node[at, PARENT]
    return runs


@kernel
def write_paths(node, end, block, path_ptr, path, run_len):
    """Write each prompt's runs from the root down, and the length of every run in blocks."""
    for i in range(end.shape[0]):
        at = end[i]
        place = path_ptr[i + 1]
        while at > 0:
            run = node[at, RUN]
            if run >= 0:
                place -= 1
                path[place] = run
                run_len[run] = node[at, END_TOK] // block - node[at, BEGIN_TOK] // block
            at = node[at, PARENT]


@kernel
def reuse_distances(path_ptr, path, run_len, own_blk, tree, last, base, blocks):
    """LRU stack distances of all accesses to shared runs (Mattson et al. 1970), a run at a time.

    A request touches its blocks deepest first, so the distance of the first block of a run is one more than
    the blocks touched since the run's last use: all of later requests, and those above it on its own path.

    Parameters
    ----------
    path_ptr, path, run_len : int64[n + 1], int64[m], int64[runs]
        Compiled prompts.
    own_blk : int64[n]
        Blocks of each request that nobody shares.
    tree : int64[n + 1]
        Scratch, zero: a Fenwick tree of the blocks last used by each request.
    last : int64[runs]
        Scratch, filled with -1: the request that used a run last.
    base, blocks : int64[m]
        Out, an entry an access: blocks used since, or -1 at the first access; blocks of the run.
    """
    for i in range(path_ptr.shape[0] - 1):
        above = 0
        previous = -1
        for place in range(path_ptr[i], path_ptr[i + 1]):
            run = path[place]
            blocks[place] = run_len[run]
            base[place] = -1
            if last[run] >= 0:
                if last[run] != previous:
                    previous = last[run]
                    above = 0
                base[place] = _sum_after(tree, last[run]) + above
                above += run_len[run]
        for place in range(path_ptr[i], path_ptr[i + 1]):
            run = path[place]
            if last[run] >= 0:
                _add(tree, last[run], -run_len[run])
            _add(tree, i, run_len[run])
            last[run] = i
        _add(tree, i, own_blk[i])


@kernel(inline="always")
def _add(tree, i, value):
    at = i + 1
    while at < tree.shape[0]:
        tree[at] += value
        at += at & -at


@kernel(inline="always")
def _sum_after(tree, i):
    """Sum over the requests after i."""
    total = 0
    at = tree.shape[0] - 1
    while at > 0:
        total += tree[at]
        at -= at & -at
    at = i + 1
    while at > 0:
        total -= tree[at]
        at -= at & -at
    return total
