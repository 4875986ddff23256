"""AIBrix's prefix-cache-preble as it really is, which is not Preble.

Source: vllm-project/aibrix, head of mid-2026. Against the paper: loads are counts and a cost that hardly
depends on use (6.75 s for every distinct prompt held), nothing is evicted by capacity, nothing is rebalanced.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from fastsim._bits import lowest_bit
from fastsim._jit import kernel
from fastsim.cluster._state import BITS, NONE
from fastsim.cluster._table import drop_slot, find_slot, get, put
from fastsim.cluster.routers._preble_times import A6000, regression_s
from fastsim.cluster.routers.aibrix import shut_out_busy
from fastsim.cluster.routers.registry import Tree, router
from fastsim.cluster.routers.tree import KEEP_TIME, REPLICAS, RUNS, deepest, forget_old, remember
from fastsim.cluster.routers.view import NOW_PS, PROMPT_TOK, REQUESTS, least

NotNegative = Annotated[float, msgspec.Meta(ge=0.0)]
_PS_PER_S = 1e12
_V100 = 2.5  # times as slow as an A6000, by its own regression
_QUADRATIC_FROM_TOK = 4096  # context from which attention's quadratic part counts


class AibrixPreble(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of `aibrix_preble`."""

    gpu: Literal["v100", "a6000"] = "v100"  # whose regression; V100 is its default
    exploit_share: Annotated[float, msgspec.Meta(ge=0.0, le=1.0)] = (
        0.5  # of the prompt, above which it follows
    )
    imbalance: NotNegative = (
        8.0  # requests between the busiest pod and the idlest that shut out all but these
    )
    window_s: NotNegative = 180.0  # uses count for so long
    ttl_s: NotNegative = 300.0  # a node not used for so long is dropped
    output_tok: NotNegative = 45.0  # decoded for each prompt held, whatever it is
    token_s: NotNegative = 0.15  # of each of these: the list of measured times is never filled


_GPU, _SHARE, _IMBALANCE, _WINDOW, _TTL, _OUTPUT, _TOKEN = range(7)

# view.memory: log of what was sent (oldest in the window, oldest that lives, next); the log; columns of pods
_IN_WINDOW, _ALIVE, _NEXT = 0, 1, 2
_HEADER = 3
_WHEN, _WHERE, _LEAF, _NODES, _COST_PS = 0, 1, 2, 3, 4
_ROW = 5
_USES, _LEAVES, _BUSY_PS = (
    0,
    1,
    2,
)  # of a pod: uses of nodes in the window, prompts held, prefill in the window
_POD = 3


def _room(params, size):
    return _HEADER + _ROW * size.requests + _POD * size.replicas


@kernel(inline="always")
def _row(place):
    return _HEADER + _ROW * place


@kernel(inline="always")
def _column(view, which):
    """Where a column of pods begins."""
    return _row(view.limits[REQUESTS]) + which * view.tree[REPLICAS]


@kernel
def _prefill_ps(view, tokens, context_tok):
    """Prefill of a node by the gateway's regression, with the parabola kept from falling below its floor."""
    seconds = regression_s(A6000, tokens, context_tok, context_tok >= _QUADRATIC_FROM_TOK)
    scale = _V100 if view.params[_GPU] == 0.0 else 1.0
    return int(seconds * scale * _PS_PER_S)


@kernel(inline="always")
def _leaf_of(view, request):
    """Number of the node that the prompt ends in: its own tail, or its last run."""
    if view.tail_blk[request] > 0 or view.path_ptr[request + 1] == view.path_ptr[request]:
        return view.tree[RUNS] + request
    return view.path[view.path_ptr[request + 1] - 1]


@kernel
def _let_go(view):
    """Let uses leave the window, and prompts that were not used for the time to live."""
    memory = view.memory
    now = view.prompt[NOW_PS]
    window_ps = int(view.params[_WINDOW] * _PS_PER_S)
    while memory[_IN_WINDOW] < memory[_NEXT] and memory[_row(memory[_IN_WINDOW]) + _WHEN] + window_ps <= now:
        row = _row(memory[_IN_WINDOW])
        pod = memory[row + _WHERE]
        memory[_column(view, _USES) + pod] -= 1
        memory[_column(view, _BUSY_PS) + pod] -= memory[row + _COST_PS]
        memory[_IN_WINDOW] += 1
    ttl_ps = int(view.params[_TTL] * _PS_PER_S)
    while memory[_ALIVE] < memory[_NEXT] and memory[_row(memory[_ALIVE]) + _WHEN] + ttl_ps <= now:
        row = _row(memory[_ALIVE])
        slot = find_slot(view.count, memory[row + _LEAF] * view.tree[REPLICAS] + memory[row + _WHERE])
        if view.count[slot, 0] != 0 and view.count[slot, 1] == memory[_ALIVE]:  # not used since
            drop_slot(view.count, slot)
            memory[_column(view, _LEAVES) + memory[row + _WHERE]] -= 1
        memory[_ALIVE] += 1


@kernel
def _note(view, request, r, matched_tok):
    """Note the use of the prompt on pod r, of which so much was known before."""
    memory = view.memory
    place = memory[_NEXT]
    row = _row(place)
    leaf = _leaf_of(view, request)
    prompt_tok = view.prompt[PROMPT_TOK]
    new_tok = prompt_tok - matched_tok
    memory[row + _WHEN] = view.prompt[NOW_PS]
    memory[row + _WHERE] = r
    memory[row + _LEAF] = leaf
    memory[row + _COST_PS] = int(new_tok / prompt_tok * _prefill_ps(view, new_tok, prompt_tok))
    memory[_NEXT] = place + 1
    memory[_column(view, _USES) + r] += 1
    memory[_column(view, _BUSY_PS) + r] += memory[row + _COST_PS]
    key = leaf * view.tree[REPLICAS] + r
    if get(view.count, key, NONE) == NONE:
        memory[_column(view, _LEAVES) + r] += 1
    put(view.count, key, place)


@kernel
def _follow(view, run):
    """Of the candidates that were sent a run, that of the fewest uses in the window; -1 if there is none."""
    uses = _column(view, _USES)
    chosen = -1
    for word in range(view.best.shape[0]):
        left = view.best[word] & view.holds[run, word]
        while left:
            r = word * BITS + lowest_bit(left)
            if chosen < 0 or view.memory[uses + r] < view.memory[uses + chosen]:
                chosen = r
            left &= left - 1
    return chosen


@kernel
def _cheapest(view, some_left_out):
    """Of the candidates the one of the least cost: prefill in the window and decode for every prompt held."""
    decode_ps = int(view.params[_OUTPUT] * view.params[_TOKEN] * _PS_PER_S)
    score = view.score
    pods = score.shape[0]
    begin = _column(view, _BUSY_PS)
    busy_ps = view.memory[begin : begin + pods]
    begin = _column(view, _LEAVES)
    leaves = view.memory[begin : begin + pods]
    for r in range(pods):
        score[r] = busy_ps[r] + decode_ps * leaves[r]
    if not some_left_out:
        return least(score)
    chosen = -1
    for word in range(view.best.shape[0]):
        left = view.best[word]
        while left:
            r = word * BITS + lowest_bit(left)
            if chosen < 0 or score[r] < score[chosen]:
                chosen = r
            left &= left - 1
    return chosen


@router(
    "aibrix_preble",
    params=AibrixPreble,
    source="vllm-project/aibrix, mid-2026 (prefix-cache-preble)",
    view="own",
    memory=_room,
    count=lambda params, size: size.requests,
    tree=lambda params, cluster: Tree(KEEP_TIME, 1, ttl_s=params.ttl_s),
)
def aibrix_preble(view, request):
    """The pod of the fewest uses that has over half of the prompt, else that of the fewest prompts.

    Uses of a pod are the requests that it was sent in the window; the gateway counts a request once for each
    node on its path. A prompt's miss rate is the share of it that was new, from the shape of the tree. First
    pod of equals.
    """
    forget_old(view, view.prompt[NOW_PS])
    _let_go(view)
    some_left_out = shut_out_busy(view, view.params[_IMBALANCE])
    run, tokens = deepest(view, request)
    r = -1
    if tokens > view.params[_SHARE] * view.prompt[PROMPT_TOK]:
        r = _follow(view, run)
    if r < 0:
        r = _cheapest(view, some_left_out)
    _note(view, request, r, tokens)
    remember(view, request, r)
    return r
