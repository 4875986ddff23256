"""Preble's global scheduler as its paper has it, and the lecture's simplification of it.

Srivatsa, He, Abhyankar, Li, Zhang, "Preble: Efficient Distributed Prompt Scheduling for LLM Serving", ICLR
2025, arXiv:2407.00023v2, sections 3.1 and 3.2, algorithms 1 and 2. What the paper leaves open is settled:

* The forest is the router's tree. A prompt enters it when it is sent, and again when its request ends, as
  the local scheduler reports then; a report that a replica holds less of a node than before takes the
  replica off the node, unless a request that has the node is in flight there, which will compute what it
  lacks. Answers are in it only as parts of later prompts. Nodes are cached whole or not at
  all; what no other prompt shares is no node.
* Nodes are those of the finished tree: a node that a later prompt splits hands its replicas and counts to
  both halves, so that nothing but its length depends on when.
* Times are the cluster's own step time or the regressions of the released code (`_preble_times`).
* The decode term of L is the mean length of the answers that ended in the window, times a decode step of
  each request alone at its prompt's length. The paper takes the answers of the replica itself, the lecture
  those of all replicas (section 3.3).
* M evicts by the order in which the router sent prompts there.
* DecodeRatio is the share of a replica's outstanding requests that decode, or of recent prompt tokens that
  were cached when they were sent.
* A prefix is a prompt's key node, the deepest with more tokens than all above it together.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from fastsim._bits import lowest_bit
from fastsim._jit import kernel
from fastsim.cluster._masks import fill
from fastsim.cluster._state import BITS, NONE
from fastsim.cluster.routers import _preble_split as split
from fastsim.cluster.routers import _preble_window as win
from fastsim.cluster.routers._preble_times import decode_ps, prefill_ps
from fastsim.cluster.routers.registry import Tree, router
from fastsim.cluster.routers.tree import (
    BLOCK_TOK,
    KEEP_ALL,
    SIZE_BLK,
    holds_run,
    lost_run,
    remember,
    tree_match,
    tree_matches,
)
from fastsim.cluster.routers.view import CACHE, FINISHED, FIRST_TOKEN, NOW_PS, OUTPUT_TOK, PROMPT_TOK

Positive = Annotated[float, msgspec.Meta(gt=0.0, le=1e6)]
NotNegative = Annotated[float, msgspec.Meta(ge=0.0, le=1e6)]
Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
Ratio = Annotated[float, msgspec.Meta(ge=1.0, le=1e6)]
Times = Literal["cluster", "a6000", "a6000_interpolated", "a100", "llama_70b_a100", "llama_70b_h100"]


class Preble(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of `preble`; every part can be switched off."""

    horizon_s: Positive = 180.0  # the window H
    times: Times = "cluster"  # prefill and decode times: the cluster's step time, or a regression of the code
    attend_cached: bool = True  # missed tokens attend to the cached ones before them, which takes time, too
    output_tok: NotNegative = 45.0  # answer length assumed where none has ended in the window; the code's
    output_mean: Literal["replica", "all"] = "replica"  # whose answers the mean length is of
    exploit: bool = True  # follow the cache where more is cached than missed; else always explore
    longest: Literal["deepest", "largest"] = "deepest"  # which matched node candidates must cache
    load_cost: bool = True  # the terms L, M and P
    eviction_cost: bool = True
    prefill_cost: bool = True
    always_full: bool = True  # M supposes that all memory is in use, as the authors do
    rebalance: bool = True
    th_bal: Ratio = 1.5  # heaviest over lightest load above which it redirects; not in the paper, the code's
    pairing: bool = True  # explored requests go to a replica that mostly decodes
    decode_ratio: Literal["outstanding", "hits"] = "outstanding"
    imbal_r: Share = 0.5  # decode ratio above which a replica mostly decodes; the code has 0.7 for hits
    autoscale: bool = True
    least_wait_s: NotNegative = 0.1  # mean wait that counts as a queue
    notices: bool = True  # listen to what replicas report of their caches


class E2(Preble, frozen=True, forbid_unknown_fields=True):
    """Parameters of `e2`: those of `preble`, with the lecture's defaults (section 3, code 03)."""

    attend_cached: bool = False
    output_mean: Literal["replica", "all"] = "all"
    always_full: bool = False
    rebalance: bool = False
    pairing: bool = False
    autoscale: bool = False


(
    HORIZON_S, TIMES, ATTEND_CACHED, OUTPUT, OUTPUT_MEAN, EXPLOIT, LONGEST, LOAD_COST, EVICTION_COST,
    PREFILL_COST, ALWAYS_FULL, REBALANCE, TH_BAL, PAIRING, DECODE_RATIO, IMBAL_R, AUTOSCALE, LEAST_WAIT_S,
    NOTICES,
) = range(19)  # fmt: skip
LARGEST = HITS = ALL = 1  # the second choice of `longest`, `decode_ratio` and `output_mean`


def forest(params, cluster) -> Tree:
    """The tree: nothing in it is forgotten but by reports."""
    return Tree(KEEP_ALL, reported=True)


# --- costs --------------------------------------------------------------------------------------------------


@kernel(inline="always")
def horizon_ps(view):
    """The window in picoseconds."""
    return int(view.params[HORIZON_S] * 1e12)


@kernel
def missed_ps(view, cached_tok):
    """Prefill time of what is not cached of the prompt."""
    prompt_tok = view.prompt[PROMPT_TOK]
    missed_tok = prompt_tok - cached_tok
    context_tok = prompt_tok if view.params[ATTEND_CACHED] else missed_tok
    return prefill_ps(view, int(view.params[TIMES]), missed_tok, context_tok)


@kernel(inline="always")
def _cached_tok(view, r):
    """Tokens of the prompt that replica r has, by the tree."""
    return min(view.match[r], view.prompt[PROMPT_TOK])


@kernel
def cheapest(view, request, among):
    """Replica with the least LoadCost of those in a mask; ties to the lowest index (algorithm 2).

    ``view.score`` has the costs. M is not reckoned where L + P is no less than the least cost so far.
    """
    params = view.params
    chosen = NONE
    least_s = 0.0
    known_tok = NONE
    missed_s = 0.0
    for r in range(view.load.shape[0]):
        view.score[r] = float("inf")
    for word in range(among.shape[0]):
        left = among[word]
        while left:
            r = word * BITS + lowest_bit(left)
            left &= left - 1
            cost_s = view.real[r] if params[LOAD_COST] else 0.0
            cached_tok = _cached_tok(view, r)
            if params[PREFILL_COST]:
                if cached_tok != known_tok:
                    known_tok = cached_tok
                    missed_s = missed_ps(view, cached_tok) * 1e-12
                cost_s += missed_s
            if params[EVICTION_COST] and (chosen == NONE or cost_s < least_s):
                room_tok = view.prompt[PROMPT_TOK] - cached_tok
                cost_s += win.eviction_s(view, request, r, room_tok, params[ALWAYS_FULL] != 0.0)
            view.score[r] = cost_s
            if chosen == NONE or cost_s < least_s:
                chosen = r
                least_s = cost_s
    return chosen


# --- the prompt and the forest ------------------------------------------------------------------------------


@kernel
def prepare(view, request):
    """Mark the nodes of a prompt as its own and price those seen for the first time.

    Returns
    -------
    place, end_blk : int, int
        Where in ``view.path`` its key node is, -1 if it has no nodes, and at which depth that ends.
    """
    memory = view.memory
    key_place = NONE
    key_end_blk = 0
    depth_blk = 0
    for place in range(view.path_ptr[request], view.path_ptr[request + 1]):
        node = view.path[place]
        size_blk = view.run_blk[node]
        row = win.node_row(view, node)
        if size_blk > depth_blk:
            key_place = place
            key_end_blk = depth_blk + size_blk
        depth_blk += size_blk
        memory[row + win.SEEN_BY] = request + 1
        if memory[row + win.NODE_PS] == 0:
            size_tok = win.node_tok(view, node)
            context_tok = depth_blk * view.tree[BLOCK_TOK] if view.params[ATTEND_CACHED] else size_tok
            memory[row + win.NODE_PS] = prefill_ps(view, int(view.params[TIMES]), size_tok, context_tok)
    return key_place, key_end_blk


@kernel
def _hold_largest(view, request, depth_blk):
    """Let ``view.best`` have the replicas that cache the largest of the nodes matched, and all above it."""
    largest = view.path_ptr[request]
    end_blk = 0
    for place in range(view.path_ptr[request], view.path_ptr[request + 1]):
        end_blk += view.run_blk[view.path[place]]
        if end_blk > depth_blk:
            break
        if view.run_blk[view.path[place]] > view.run_blk[view.path[largest]]:
            largest = place
    fill(view.best, view.load.shape[0])
    for place in range(view.path_ptr[request], largest + 1):
        for word in range(view.best.shape[0]):
            view.best[word] &= view.holds[view.path[place], word]


@kernel
def note_cache(view, run, r, held_blk):
    """Take replica r off the nodes of which it holds less than when it last reported that run.

    A request in flight there that shares a node will compute it again, so that stays.
    """
    told = win.told_row(view, run, r)
    before_blk = view.memory[told]
    view.memory[told] = held_blk
    for part in range(view.part_ptr[run], view.part_ptr[run + 1]):
        node = view.part[part, 0]
        gone = lost_run(view, part, before_blk, held_blk) and holds_run(view, node, r)
        if gone and not win.to_be_computed(view, node, r):
            view.holds[node, r // BITS] &= ~(1 << (r % BITS))
            view.list[r, SIZE_BLK] -= view.run_blk[node]
            win.unlink(view, node, r)


def hear(view, kind, what, replica, value):
    """Listen to first tokens, ends and, unless told not to, caches."""
    if kind == FIRST_TOKEN:
        win.count_first(view, what, view.prompt[NOW_PS], value)
    elif kind == FINISHED:
        win.count_done(view, what, view.prompt[NOW_PS])
        remember(view, what, replica)
        win.use_path(view, what, replica)
    elif kind == CACHE and view.params[NOTICES]:
        note_cache(view, what, replica, value)
    return 0


# --- algorithm 1 --------------------------------------------------------------------------------------------


@kernel
def redirected(view, chosen):
    """The lightest replica instead of the heaviest, while their loads are out of balance; else `chosen`."""
    heavy_s = view.real[chosen]
    for r in range(view.load.shape[0]):
        if view.real[r] > heavy_s:
            return chosen  # mostly soon: there is a heavier one
    lightest = 0
    for r in range(1, view.load.shape[0]):
        if view.real[r] < view.real[lightest]:
            lightest = r
    return lightest if heavy_s > view.params[TH_BAL] * view.real[lightest] else chosen


@kernel
def _exploit(view, request, key_place, key_matched):
    """Replica for a request of which more is cached than missed; ``view.best`` has the candidates."""
    params = view.params
    node = view.path[key_place]
    child = view.path[key_place + 1] if key_place + 1 < view.path_ptr[request + 1] else NONE
    scales = params[AUTOSCALE] != 0.0 and key_matched
    if scales and split.shared(view, node):
        chosen = split.part_of(view, node, child)
    else:
        chosen = cheapest(view, request, view.best)
    if params[REBALANCE]:
        chosen = redirected(view, chosen)
    now = view.prompt[NOW_PS]
    if (
        scales
        and split.waits_doubled(view, node, now, horizon_ps(view), params[LEAST_WAIT_S])
        and split.grow(view, node, now)
    ):
        chosen = split.part_of(view, node, child)
    return chosen


@kernel
def decode_heaviest(view):
    """Replica with the largest DecodeRatio, the lowest index among equals, and the ratio."""
    memory = view.memory
    part = win.HIT_TOK if view.params[DECODE_RATIO] == HITS else win.DECODING
    whole = win.PROMPT_TOK if view.params[DECODE_RATIO] == HITS else win.OUTSTANDING
    chosen = 0
    top = 0  # the largest ratio, as a fraction
    bottom = 1
    for r in range(view.load.shape[0]):
        row = win.replica_row(r)
        if memory[row + part] * bottom > top * memory[row + whole]:
            top = memory[row + part]
            bottom = memory[row + whole]
            chosen = r
    return chosen, top / bottom


@kernel
def _explore(view, request):
    """Replica for a request of which no more is cached than missed."""
    if view.params[PAIRING]:
        chosen, ratio = decode_heaviest(view)
        if ratio > view.params[IMBAL_R]:
            return chosen
    fill(view.best, view.load.shape[0])
    return cheapest(view, request, view.best)


@kernel
def _send(view, request, r, key):
    """Write down that a request goes to replica r."""
    memory = view.memory
    its = win.request_row(view, request)
    prompt_tok = view.prompt[PROMPT_TOK]
    cached_tok = _cached_tok(view, r)
    memory[its + win.ITS_PREFILL_PS] = missed_ps(view, cached_tok)
    memory[its + win.ITS_DECODE_PS] = decode_ps(view, int(view.params[TIMES]), prompt_tok)
    memory[its + win.ITS_HIT_TOK] = cached_tok
    memory[its + win.ITS_PROMPT_TOK] = prompt_tok
    memory[its + win.ITS_OUTPUT_TOK] = view.prompt[OUTPUT_TOK]  # looked at when it has ended
    memory[its + win.ITS_KEY] = key
    if key != NONE and split.shared(view, key):
        decode_tok = win.mean_output_tok(view, r, view.params[OUTPUT_MEAN] == ALL, view.params[OUTPUT])
        work_ps = memory[its + win.ITS_PREFILL_PS] + int(decode_tok * memory[its + win.ITS_DECODE_PS])
        split.count_share(view, key, r, work_ps)
    win.count_sent(view, request, r, view.prompt[NOW_PS])
    remember(view, request, r)
    win.use_path(view, request, r)


@kernel
def renew_window(view):
    """Let go what has left the window by now, and reckon the loads L."""
    win.expire(view, view.prompt[NOW_PS], horizon_ps(view))
    win.update_loads(view, view.params[OUTPUT_MEAN] == ALL, view.params[OUTPUT])


@kernel
def decide(view, request):
    """Algorithm 1 and what follows an assignment; returns the replica."""
    renew_window(view)
    key_place, key_end_blk = prepare(view, request)
    tree_matches(view, request)
    depth_blk = tree_match(view, request)
    cached_tok = min(depth_blk * view.tree[BLOCK_TOK], view.prompt[PROMPT_TOK])
    if view.params[EXPLOIT] and view.prompt[PROMPT_TOK] - cached_tok < cached_tok:
        if view.params[LONGEST] == LARGEST:
            _hold_largest(view, request, depth_blk)
        chosen = _exploit(view, request, key_place, key_end_blk <= depth_blk)
    else:
        chosen = _explore(view, request)
    _send(view, request, chosen, view.path[key_place] if key_place != NONE else NONE)
    return chosen


@router(
    "e2",
    needs=["evictions", "step_time"],
    params=E2,
    source="lecture 11, section 3, after Preble (arXiv:2407.00023v2)",
    heard=hear,
    memory=win.memory_length,
    real=lambda params, size: size.replicas,
    tree=forest,
)
def e2(view, request):
    """Preble's E2 as the lecture simplifies it: follow the cache where it has more than half of the prompt.

    Else, and among the replicas that have as much, the least L + M + P. Its switches are `preble`'s;
    `rebalance` and `pairing` are the lecture's experiments. Its tree has what was sent, as soon as it was
    sent: replicas' notices of what they evict take it away, but never what a request in flight there will
    compute (the lecture, section 3.1).
    """
    return decide(view, request)


@router(
    "preble",
    needs=["evictions", "step_time"],
    params=Preble,
    source="Preble (ICLR 2025), arXiv:2407.00023v2",
    view="own",
    heard=hear,
    memory=win.memory_length,
    real=lambda params, size: size.replicas,
    tree=forest,
)
def preble(view, request):
    """Preble as its paper has it: E2 with L + M + P, rebalancing, prefill/decode pairing and autoscaling.

    Every part can be switched off by a parameter. What its tree knows of caches is as in `e2`: prompts enter
    it when they are sent, and evictions are told (sections 3.1 and 3.2 of the paper).
    """
    return decide(view, request)
