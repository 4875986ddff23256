"""Preble's global scheduler as its released code has it, which is not what the paper says.

WukLab/preble at 8e7906a (May 2024). Where it differs from `preble`:

* It follows the cache where the new leaf has fewer tokens than what stands before it. A prompt that is in the
  tree already has an old node for a leaf, so where that is the longer part a full hit is explored.
* Candidates are the replicas that the nearest node above with an allocation is allocated to; a node keeps
  its allocation while any request of the window has it, whatever was computed.
* Requests explored go to the replica that hit most in the last seconds, if that is much.
* L is by important nodes: misses in the window times prefill over the replicas it is allocated to, and for
  each request there now a decode of the longest answer at the median time per output token. M counts large
  nodes only, at their misses in the window; P is left out.
* Rebalancing moves nodes with all below them after each decision, not requests; autoscaling adds a replica
  to the one node of the heaviest that can be moved, if times to first token doubled.

Decided here: hits are those of the tree when the request was sent; nodes with requests at a replica are
evicted after those without, by last use; nodes that cost nothing are not moved.
"""

from __future__ import annotations

import math
from typing import Annotated

import msgspec

from fastsim._bits import lowest_bit
from fastsim._jit import kernel
from fastsim.cluster._masks import fill
from fastsim.cluster._scan import bits_at, bits_below, lowest_of
from fastsim.cluster._state import BITS, NONE
from fastsim.cluster.routers import _preble_nodes as nd
from fastsim.cluster.routers import _preble_rows as rw
from fastsim.cluster.routers._preble_heaps import cheapest
from fastsim.cluster.routers._preble_polls import poll
from fastsim.cluster.routers._preble_times import prefill_ps
from fastsim.cluster.routers._preble_tpots import note_tpot, real_length, tpot_s
from fastsim.cluster.routers.preble import NotNegative, Positive, Ratio, Share, Times, forest
from fastsim.cluster.routers.registry import router
from fastsim.cluster.routers.tree import BLOCK_TOK, holds_run
from fastsim.cluster.routers.view import CACHE, FINISHED, FIRST_TOKEN, NOW_PS, OUTPUT_TOK, PROMPT_TOK, least


class PrebleCode(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of `preble_code`."""

    horizon_s: Positive = 180.0
    times: Times = "a6000"  # the code's own for Mistral-7B on A6000; "cluster" for any other cluster
    output_tok: NotNegative = 45.0  # the longest answer that a request may ask for
    decode_first: bool = True  # off in the code's HTTP server
    hit_ratio: Share = 0.7  # of the last `hit_window_s`, polled every `poll_s`
    hit_window_s: Positive = 30.0
    poll_s: Annotated[float, msgspec.Meta(ge=1e-12, le=1e6)] = 0.5
    eviction_cost: bool = True
    rebalance: bool = True
    high_load_threshold: Ratio = 1.5
    warm_requests: NotNegative = 50.0  # times the replicas: so many requests before it rebalances
    autoscale: bool = True
    notices: bool = True
    argmin_bug: bool = False  # take the place among the candidates for the replica, as one path does


(
    HORIZON_S, TIMES, OUTPUT, DECODE_FIRST, HIT_RATIO, HIT_WINDOW_S, POLL_S, EVICTION_COST, REBALANCE,
    HIGH_LOAD, WARM_REQUESTS, AUTOSCALE, NOTICES, ARGMIN_BUG,
) = range(14)  # fmt: skip

_DEEP = 3  # levels that a leaf may be below its important node, below which nothing is moved


# --- costs --------------------------------------------------------------------------------------------------


@kernel
def _weigh(view):
    """Write load L of the replicas where it may have changed, in seconds, to the start of ``view.real``."""
    memory = view.memory
    for word in range(view.best.shape[0]):
        left = memory[nd.changed_at(view) + word]
        memory[nd.changed_at(view) + word] = 0
        while left:
            r = word * BITS + lowest_bit(left)
            left &= left - 1
            row = rw.replica_row(r)
            decode_s = memory[row + rw.OUTSTANDING] * view.params[OUTPUT] * tpot_s(view, r)
            view.real[r] = memory[row + rw.LOAD_PS] * 1e-12 + decode_s


@kernel
def _cheapest(view, request, leaf_tok):
    """Replica of ``view.best`` with the least L + M, the lowest index among equals; fills ``view.score``."""
    chosen = NONE
    place = 0
    places = 0
    least_s = 0.0
    score = view.score
    for r in range(score.shape[0]):
        score[r] = math.inf
    for word in range(view.best.shape[0]):
        left = view.best[word]
        while left:
            r = word * BITS + lowest_bit(left)
            left &= left - 1
            cost_s = view.real[r]
            if view.params[EVICTION_COST] and (chosen == NONE or cost_s < least_s):
                cost_s += nd.eviction_s(view, request, r, leaf_tok)
            score[r] = cost_s
            if chosen == NONE or cost_s < least_s:
                chosen = r
                place = places
                least_s = cost_s
            places += 1
    return place if view.params[ARGMIN_BUG] else chosen


# --- the prompt and the tree --------------------------------------------------------------------------------


@kernel
def _match(view, request):
    """Match the prompt against all that was sent so far, wherever; link and price the nodes seen first in it.

    Returns
    -------
    deepest : int
        The last node matched, -1 if none.
    leaf_tok : int
        Tokens of the leaf that the prompt makes, or of the old one that it ends with.
    important : int
        Where in ``view.path`` its important node is, or -1 if that is the end it shares with nobody.
    """
    memory = view.memory
    prompt_tok = view.prompt[PROMPT_TOK]
    block_tok = view.tree[BLOCK_TOK]
    end = view.path_ptr[request + 1]
    deepest = NONE
    important = NONE
    depth_tok = 0
    known_tok = 0
    up = NONE
    for place in range(view.path_ptr[request], end):
        node = view.path[place]
        row = rw.node_row(view, node)
        size_tok = view.run_blk[node] * block_tok
        if size_tok > depth_tok:
            important = place
        if memory[row + rw.SEEN] == 0:
            _link(view, node, up, size_tok, depth_tok)
        else:
            deepest = node
            known_tok += size_tok
        depth_tok += size_tok
        up = node
    if prompt_tok - depth_tok > depth_tok:
        important = NONE
    if deepest != NONE and deepest == up and view.tail_blk[request] == 0:
        return deepest, rw.node_tok(view, deepest), important
    return deepest, max(0, prompt_tok - known_tok), important


@kernel
def _link(view, node, up, size_tok, depth_tok):
    """Link a node that is seen for the first time to the one above, if any, and price it."""
    memory = view.memory
    row = rw.node_row(view, node)
    memory[rw.NODES] += 1
    memory[row + rw.SEEN] = memory[rw.NODES]
    memory[row + rw.IS_LARGE] = 1 if size_tok > depth_tok else 0
    memory[row + rw.NODE_PS] = prefill_ps(view, int(view.params[TIMES]), size_tok, depth_tok + size_tok)
    memory[row + rw.UP] = up + 1
    if up != NONE:
        above = rw.node_row(view, up)
        memory[row + rw.NEXT] = memory[above + rw.DOWN]
        memory[above + rw.DOWN] = node + 1


@kernel
def _candidates(view, node):
    """Let ``view.best`` have the replicas that the nearest node from here up is allocated to, if any."""
    while node != NONE:
        row = rw.node_row(view, node)
        if view.memory[row + rw.ALLOCATED] > 0:
            for word in range(view.best.shape[0]):
                view.best[word] = view.holds[node, word]
            return True
        node = view.memory[row + rw.UP] - 1
    return False


@kernel
def _hit_blk(view, request, r):
    """Nodes of the prompt that replica r is allocated from its start without a gap: how many, and blocks."""
    nodes = 0
    blocks = 0
    for place in range(view.path_ptr[request], view.path_ptr[request + 1]):
        if not holds_run(view, view.path[place], r):
            break
        nodes += 1
        blocks += view.run_blk[view.path[place]]
    return nodes, blocks


# --- after a decision ---------------------------------------------------------------------------------------


@kernel
def _gather(view, light):
    """Gather the replicas of ``view.best`` that are far heavier than the lightest and may be relieved."""
    far_s = view.params[HIGH_LOAD] * view.real[light]
    loads = view.real[: view.load.shape[0]]
    for word in range(view.best.shape[0]):
        nearer = bits_below(loads[word * BITS : (word + 1) * BITS], far_s)
        view.memory[nd.heavy_at(view) + word] = view.best[word] & nd.relievable(view, word) & ~nearer
    view.memory[nd.heavy_at(view) + light // BITS] &= ~(1 << (light % BITS))


@kernel
def _next_to_relieve(view, light):
    """Take the heaviest that can be relieved out of those gathered, the lowest index among equals, or -1."""
    at = nd.heavy_at(view)
    while True:
        heavy = NONE
        most_s = -1.0
        for word in range(view.best.shape[0]):
            left = view.memory[at + word]
            while left:
                r = word * BITS + lowest_bit(left)
                left &= left - 1
                if view.real[r] > most_s:
                    heavy = r
                    most_s = view.real[r]
        if heavy == NONE:
            return NONE
        view.memory[at + heavy // BITS] ^= 1 << (heavy % BITS)
        if _moves(view, heavy, light):
            return heavy


@kernel
def _moves(view, heavy, light):
    """Whether a replica can be relieved: not if moving its cheapest node would swap their roles."""
    node = cheapest(view, heavy)
    if view.memory[rw.replica_row(heavy) + rw.N_MOVABLE] == 1:
        # it would not be looked at had its requests not slowed down
        return view.params[AUTOSCALE] != 0.0 and not holds_run(view, node, light)
    cost_s = view.memory[rw.node_row(view, node) + rw.NODE_LOAD_PS] * 1e-12
    return view.real[heavy] - cost_s >= view.real[light] + cost_s


@kernel
def _keep_lighter(view, heavy):
    """Leave in ``view.best`` only what is lighter: a heavier replica had its turn, with nothing to move."""
    loads = view.real[: view.load.shape[0]]
    most_s = view.real[heavy]
    for word in range(view.best.shape[0]):
        part = loads[word * BITS : (word + 1) * BITS]
        places = min(max(0, heavy + 1 - word * BITS), BITS)  # of equals those with a higher index
        view.best[word] &= bits_below(part, most_s) | bits_at(part, most_s) >> places << places


@kernel
def _relieve(view, heavy, light):
    """Move nodes from one replica to another, the cheapest first, unless that would only swap their roles.

    A single one is shared instead.
    """
    threshold = view.params[HIGH_LOAD]
    node = cheapest(view, heavy)
    if view.memory[rw.replica_row(heavy) + rw.N_MOVABLE] == 1:
        nd.allocate(view, node, light)
        _weigh(view)
        return
    while node != NONE and view.real[heavy] >= threshold * view.real[light]:
        cost_s = view.memory[rw.node_row(view, node) + rw.NODE_LOAD_PS] * 1e-12
        if view.real[heavy] - cost_s < view.real[light] + cost_s:
            return
        nd.move_subtree(view, node, heavy, light)
        _weigh(view)
        node = cheapest(view, heavy)


@kernel
def _rebalance(view):
    """Relieve the heaviest replica for the lightest, then the next heaviest, while they are far apart."""
    some = 0
    for word in range(view.best.shape[0]):
        some |= nd.relievable(view, word)
    if some == 0:
        return
    _weigh(view)
    fill(view.best, view.load.shape[0])
    loads = view.real[: view.load.shape[0]]
    light = least(loads)
    while light != NONE:
        _gather(view, light)
        heavy = _next_to_relieve(view, light)
        if heavy == NONE:
            return
        _keep_lighter(view, heavy)
        _relieve(view, heavy, light)
        light = lowest_of(loads, view.best)


def hear(view, kind, what, replica, value):
    """Listen to first tokens, ends and, unless told not to, caches."""
    now = view.prompt[NOW_PS]
    if kind == FIRST_TOKEN:
        nd.count_first(view, what, now)
    elif kind == FINISHED:
        its = rw.request_row(view, what)
        later_tok = view.memory[its + rw.ITS_OUTPUT_TOK] - 1
        if later_tok > 0:
            note_tpot(view, replica, (now - view.memory[its + rw.FIRST_PS]) * 1e-12 / later_tok)
        nd.count_done(view, what)
    elif kind == CACHE and view.params[NOTICES]:
        nd.note_cache(view, what, replica, value)
    return 0


# --- the policy ---------------------------------------------------------------------------------------------


@kernel
def _choose(view, request, deepest, leaf_tok):
    """Replica of the candidates, of all, or the one that hits most."""
    before_tok = view.prompt[PROMPT_TOK] - leaf_tok
    if leaf_tok < before_tok and _candidates(view, deepest):
        return _cheapest(view, request, leaf_tok)
    if view.params[DECODE_FIRST]:
        every_ps = int(view.params[POLL_S] * 1e12)
        ratio = poll(view, view.prompt[NOW_PS], every_ps, int(view.params[HIT_WINDOW_S] * 1e12))
        if ratio >= view.params[HIT_RATIO]:
            return view.memory[rw.BEST]
    fill(view.best, view.load.shape[0])
    return _cheapest(view, request, leaf_tok)


@kernel
def _send(view, request, r, important):
    """Write down that a request goes to replica r."""
    memory = view.memory
    its = rw.request_row(view, request)
    prompt_tok = view.prompt[PROMPT_TOK]
    hit_nodes, hit_blk = _hit_blk(view, request, r)
    memory[its + rw.ITS_HIT_TOK] = min(prompt_tok, hit_blk * view.tree[BLOCK_TOK])
    memory[its + rw.ITS_PROMPT_TOK] = prompt_tok
    memory[its + rw.ITS_OUTPUT_TOK] = view.prompt[OUTPUT_TOK]  # looked at when it has ended
    if important == NONE:
        own_tok = prompt_tok
        for place in range(view.path_ptr[request], view.path_ptr[request + 1]):
            own_tok -= rw.node_tok(view, view.path[place])
        memory[its + rw.ITS_NODE] = NONE
        memory[its + rw.ITS_OWN_PS] = prefill_ps(view, int(view.params[TIMES]), own_tok, prompt_tok)
    else:
        memory[its + rw.ITS_NODE] = view.path[important]
        memory[its + rw.ITS_MISS] = 1 if important - view.path_ptr[request] >= hit_nodes else 0
    nd.count_sent(view, request, r, view.prompt[NOW_PS])


@router(
    "preble_code",
    needs=["evictions", "step_time"],
    params=PrebleCode,
    source="WukLab/preble at 8e7906a (May 2024)",
    view="own",
    heard=hear,
    memory=rw.memory_length,
    real=real_length,
    tree=forest,
)
def preble_code(view, request):
    """Preble as its released code has it: leaves for the exploit test, loads by large nodes, nodes that move.

    Every difference from the paper is described at the head of the file.
    """
    nd.expire(view, view.prompt[NOW_PS], int(view.params[HORIZON_S] * 1e12))
    deepest, leaf_tok, important = _match(view, request)
    _weigh(view)
    chosen = _choose(view, request, deepest, leaf_tok)
    _send(view, request, chosen, important)
    levels = view.path_ptr[request + 1] - important - (0 if view.tail_blk[request] > 0 else 1)
    warm = view.memory[rw.SENT] >= view.params[WARM_REQUESTS] * view.load.shape[0]
    if view.params[REBALANCE] and warm and (important == NONE or levels < _DEEP):
        _rebalance(view)
    return chosen
