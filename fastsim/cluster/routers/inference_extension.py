"""The endpoint picker of Kubernetes' Gateway API Inference Extension, and of llm-d: weighted scorers.

Source: llm-d/llm-d-router head ebab68792 (2026-08-22), and the extension's history for the defaults of 2025.
Every scorer gives each replica a number in [0, 1]; the weighted sum is what the picker looks at. Metrics are
scraped every 50 ms and stale in between, and decisions in flight do not see each other.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from fastsim._bits import lowest_bit
from fastsim._jit import kernel
from fastsim.cluster._index import clear_matches
from fastsim.cluster._masks import fill
from fastsim.cluster._state import BITS
from fastsim.cluster.routers.picks import choose_by_weight, choose_most
from fastsim.cluster.routers.registry import Tree, router
from fastsim.cluster.routers.tree import (
    BLOCK_TOK,
    KEEP_BLOCKS,
    anybody_holds,
    blocks_sent,
    remember,
    tree_matches,
)
from fastsim.cluster.routers.view import PROMPT_TOK, smallest_and_largest

NotNegative = Annotated[float, msgspec.Meta(ge=0.0)]
Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
Count = Annotated[int, msgspec.Meta(ge=1)]
Picker = Literal["max_score", "weighted_random"]
_SOURCE = "llm-d/llm-d-router ebab68792, 2026-08"
_LONG_TOK = 8192.0  # a match this long has the whole score for length
_QUEUE_LIMIT = 128.0  # waiting requests at which the load-aware scorer gives nothing
_TOKEN_LIMIT = 4_194_304.0  # in-flight tokens at which the token scorer gives nothing


class Scorers(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of `epp_precise`: weights of the scorers, then the rest; defaults are llm-d's of 2026."""

    queue: NotNegative = 2.0  # fewest waiting requests
    kv_use: NotNegative = 2.0  # lowest use of the KV cache
    prefix: NotNegative = 3.0  # share of the prompt's blocks sent there before
    running: NotNegative = 0.0  # fewest running requests
    active: NotNegative = 0.0  # fewest requests of this router's own in flight
    load_aware: NotNegative = 0.0  # half of what is left of 128 waiting requests
    token_load: NotNegative = 0.0  # what is left of 4 M own tokens in flight
    no_hit_lru: NotNegative = 0.0  # of replicas for a prompt nobody has: the one so used longest ago
    length_weight: Share = 0.0  # of the prefix score: part for the match's length in tokens, squared
    picker: Picker = "max_score"
    sticky_share: Share = 0.0  # only replicas with so much of the prompt, if there are any; 0 is off
    sticky_limit_s: NotNegative = 18.0  # unless the best of them is so much slower than the best other
    prefill_rate: Annotated[float, msgspec.Meta(gt=0.0)] = 15928.0  # tokens a second, for that comparison
    scrape_s: NotNegative = 0.05  # metrics are this old at most


class IndexedScorers(Scorers, frozen=True, forbid_unknown_fields=True):
    """Parameters of `epp`."""

    index_blk: Count = 31250  # blocks remembered a replica; the engine's own number if that is smaller
    min_block_tok: Count = 64  # tokens a block of the index: the engine's, but at least so many
    gaps_count: bool = True  # its known quirk: a later block counts though an earlier one is missing


class Scorers2025(Scorers, frozen=True, forbid_unknown_fields=True):
    """Parameters of `epp_2025`; defaults are the chart's of July 2025."""

    queue: NotNegative = 1.0
    kv_use: NotNegative = 1.0
    prefix: NotNegative = 1.0
    sticky_limit_s: NotNegative = 5.0
    index_blk: Count = 31250
    block_chars: Count = 64  # characters a block of the index
    gaps_count: bool = True
    chars_per_tok: Annotated[float, msgspec.Meta(gt=0.0)] = 4.0
    most_blk: Count = 256  # blocks of a prompt that are looked at


(_QUEUE, _KV, _PREFIX, _RUNNING, _ACTIVE, _LOAD_AWARE, _TOKENS, _COLD, _LENGTH) = range(9)
_PICKER, _STICKY, _LIMIT, _RATE = 9, 10, 11, 12
_GAPS = 16  # of `epp` and `epp_2025`

# view.memory: replicas by their last use for a prompt nobody had, in a list; places are numbers + 1; and
# which of the metrics' changes the scores in view.real belong to
_FIRST, _LAST, _SCORED = 0, 1, 2
_HEADER = 3
_NEXT, _PREV, _USED = 0, 1, 2
_ROW = 3


def _room(params, size):
    return _HEADER + _ROW * size.replicas


def _metric_scores(params, size):
    return size.replicas


# --- matches ------------------------------------------------------------------------------------------------


@kernel
def _matches_with_gaps(view, request):
    """Fill ``view.match`` with the tokens a replica was sent, gaps or not, as far as anybody was sent any."""
    match = view.match
    block = view.tree[BLOCK_TOK]
    clear_matches(match, view.found)
    for place in range(view.path_ptr[request], view.path_ptr[request + 1]):
        run = view.path[place]
        if not anybody_holds(view, run):
            return
        for word in range(view.holds.shape[1]):
            left = view.holds[run, word]
            view.found[word] |= left
            while left:
                match[word * BITS + lowest_bit(left)] += view.run_blk[run] * block
                left &= left - 1
            left = view.marks[run, word]
            view.found[word] |= left
            while left:
                r = word * BITS + lowest_bit(left)
                match[r] += blocks_sent(view, run, r) * block
                left &= left - 1


@kernel
def _indexed_tok(view, request):
    """Tokens of the prompt's blocks, as the index counts them."""
    blocks = view.tail_blk[request]
    for place in range(view.path_ptr[request], view.path_ptr[request + 1]):
        blocks += view.run_blk[view.path[place]]
    return blocks * view.tree[BLOCK_TOK]


# --- scores -------------------------------------------------------------------------------------------------


@kernel
def _add_fewest(score, weight, values):
    """Add weight x (most - value) / (most - fewest), or the weight to all if all are equal."""
    if weight == 0.0:
        return
    low, high = smallest_and_largest(values)
    span = high - low
    for r in range(values.shape[0]):
        score[r] += weight * ((high - values[r]) / span if span > 0 else 1.0)


@kernel
def _score_metrics(view):
    """Scores of the engines' metrics, into ``view.real``."""
    score = view.real
    params = view.params
    for r in range(view.score.shape[0]):
        score[r] = 0.0
    _add_fewest(score, params[_QUEUE], view.waiting)
    if params[_KV] > 0.0:
        for r in range(view.kv_used.shape[0]):
            score[r] += params[_KV] * (1.0 - view.kv_used[r] / view.kv_blocks[0])
    _add_fewest(score, params[_RUNNING], view.running)
    if params[_LOAD_AWARE] > 0.0:
        for r in range(view.waiting.shape[0]):
            score[r] += params[_LOAD_AWARE] * 0.5 * max(0.0, 1.0 - view.waiting[r] / _QUEUE_LIMIT)


@kernel
def _add_counts(view):
    """Add the scores of this router's own counts."""
    score = view.score
    params = view.params
    if params[_ACTIVE] > 0.0:
        most = 1
        for r in range(score.shape[0]):
            most = max(most, view.load[r])
        for r in range(score.shape[0]):
            score[r] += params[_ACTIVE] * ((most - view.load[r]) / most if view.load[r] > 0 else 1.0)
    if params[_TOKENS] > 0.0:
        for r in range(score.shape[0]):
            score[r] += params[_TOKENS] * (1.0 - min(1.0, view.work[r] / _TOKEN_LIMIT))


@kernel
def _add_prefix(view, total_tok):
    """Add the score of the matches in ``view.match``; returns whether anybody has any."""
    length_weight = view.params[_LENGTH]
    warm = False
    for word in range(view.found.shape[0]):
        left = view.found[word]
        while left:
            r = word * BITS + lowest_bit(left)
            left &= left - 1
            tokens = view.match[r]
            warm = warm or tokens > 0
            share = tokens / total_tok if total_tok > 0 else 0.0
            long = min(1.0, tokens / _LONG_TOK)
            part = length_weight * long * long + (1.0 - length_weight) * share
            view.score[r] += view.params[_PREFIX] * part
    return warm


@kernel
def _add_cold(view, warm):
    """Score for prompts nobody has: 1 for the replica so used longest ago, 0 for the last; half if warm."""
    weight = view.params[_COLD]
    score = view.score
    replicas = score.shape[0]
    if weight == 0.0:
        return
    if warm or replicas == 1:
        for r in range(replicas):
            score[r] += weight * (0.5 if warm else 1.0)
        return
    rank = 0
    for r in range(replicas):  # never used: before all others, by number
        if view.memory[_HEADER + _ROW * r + _USED] == 0:
            score[r] += weight * (replicas - 1 - rank) / (replicas - 1)
            rank += 1
    at = view.memory[_FIRST]
    while at != 0:
        score[at - 1] += weight * (replicas - 1 - rank) / (replicas - 1)
        rank += 1
        at = view.memory[_HEADER + _ROW * (at - 1) + _NEXT]


@kernel
def _note_cold(view, r):
    """Make replica r the one most recently used for a prompt nobody has."""
    memory = view.memory
    row = _HEADER + _ROW * r
    if memory[row + _USED]:
        before = memory[row + _PREV]
        after = memory[row + _NEXT]
        if before == 0:
            memory[_FIRST] = after
        else:
            memory[_HEADER + _ROW * (before - 1) + _NEXT] = after
        if after == 0:
            memory[_LAST] = before
        else:
            memory[_HEADER + _ROW * (after - 1) + _PREV] = before
    memory[row + _USED] = 1
    memory[row + _PREV] = memory[_LAST]
    memory[row + _NEXT] = 0
    if memory[_LAST] == 0:
        memory[_FIRST] = r + 1
    else:
        memory[_HEADER + _ROW * (memory[_LAST] - 1) + _NEXT] = r + 1
    memory[_LAST] = r + 1


# --- the filter and the picker ------------------------------------------------------------------------------


@kernel
def _keep_sticky(view, total_tok):
    """Leave only replicas that have enough of the prompt in ``view.best``, unless they are much slower.

    Returns whether others were left out.
    """
    fill(view.best, view.score.shape[0])
    share = view.params[_STICKY]
    if share == 0.0 or total_tok == 0:
        return False
    sticky = -1.0
    other = -1.0
    for r in range(view.score.shape[0]):
        seconds = view.work[r] / view.params[_RATE]
        if view.match[r] >= share * total_tok:
            sticky = seconds if sticky < 0.0 else min(sticky, seconds)
        else:
            other = seconds if other < 0.0 else min(other, seconds)
    if sticky < 0.0 or (other >= 0.0 and sticky - other > view.params[_LIMIT]):
        return False
    for r in range(view.score.shape[0]):
        if view.match[r] < share * total_tok:
            view.best[r // BITS] &= ~(1 << (r % BITS))
    return True


@kernel
def _pick(view, total_tok):
    """Score all replicas, filter, and pick; the picker draws as `picks` says."""
    score = view.score
    if view.memory[_SCORED] != view.changes[0]:
        view.memory[_SCORED] = view.changes[0]
        _score_metrics(view)
    for r in range(score.shape[0]):
        score[r] = view.real[r]
    _add_counts(view)
    warm = _add_prefix(view, total_tok)
    _add_cold(view, warm)
    if _keep_sticky(view, total_tok):
        for r in range(score.shape[0]):
            if view.best[r // BITS] >> (r % BITS) & 1 == 0:
                score[r] = -1.0
    by_weight = view.params[_PICKER] == 1.0
    r = choose_by_weight(score, view.rng) if by_weight else choose_most(score, view.rng)
    if view.params[_COLD] > 0.0 and not warm:
        _note_cold(view, r)
    return r


@kernel
def _pick_by_index(view, request):
    if view.params[_GAPS]:
        _matches_with_gaps(view, request)
    else:
        tree_matches(view, request)
    r = _pick(view, _indexed_tok(view, request))
    remember(view, request, r)
    return r


def _index(params, cluster):
    block = max(params.min_block_tok, cluster.block)
    capacity = min(params.index_blk, max(1, cluster.kv_blocks * cluster.block // block))
    return Tree(KEEP_BLOCKS, block, capacity, partial=True, marks=True)


def _index_2025(params, cluster):
    block = max(1, round(params.block_chars / params.chars_per_tok))
    return Tree(KEEP_BLOCKS, block, params.index_blk, marks=True, most_blk=params.most_blk)


@router(
    "epp",
    needs=["metrics", "work"],
    params=IndexedScorers,
    source=_SOURCE,
    view="own",
    memory=_room,
    real=_metric_scores,
    tree=_index,
)
def epp(view, request):
    """Weighted scores of queue, KV use and prefix, highest first; prefixes by what was sent; ties at random.

    The index has blocks of at least 64 tokens, the last incomplete one too, in an LRU list a replica. An
    incomplete block counts as the request's own: identical prompts share all but that one.
    """
    return _pick_by_index(view, request)


@router(
    "epp_2025",
    needs=["metrics", "work"],
    params=Scorers2025,
    source="kubernetes-sigs/gateway-api-inference-extension, July 2025",
    view="own",
    memory=_room,
    real=_metric_scores,
    tree=_index_2025,
)
def epp_2025(view, request):
    """As epp with weights and index of 2025: blocks of 64 characters, the first 256 of a prompt."""
    return _pick_by_index(view, request)


@router(
    "epp_precise",
    needs=["metrics", "work", "matches"],
    params=Scorers,
    source=_SOURCE + ", with llm-d-kv-cache",
    view="own",
    memory=_room,
    real=_metric_scores,
)
def epp_precise(view, request):
    """As epp with prefixes known by events: consecutive blocks from the start; ties at random."""
    return _pick(view, view.prompt[PROMPT_TOK] // view.limits[2] * view.limits[2])
