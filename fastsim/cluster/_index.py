"""Kernels of the index a router matches prompts against: which replicas hold which run, as bit masks.

For every shared run a mask of the replicas that hold all of it and one of those that hold a part from its
start, so that one walk down a prompt's runs matches all replicas at once; how large a part is, a table tells.
They follow the cache events (`_events`) as these reach the routers. Where prompts in flight count as held,
the view has masks of these, too (`_flight`).
"""

from __future__ import annotations

from fastsim._bits import bit_count, lowest_bit
from fastsim._jit import kernel
from fastsim.cluster._flight import knows_of_flights
from fastsim.cluster._masks import fill
from fastsim.cluster._state import (
    ACTIVE,
    BITS,
    BLOCK,
    COPY_NEXT,
    END,
    NONE,
    REPLICAS,
    SEEN_LIVE,
    START,
)
from fastsim.cluster._table import drop_slot, find_slot, get, put

_MANY = 16  # replicas of a word, from which on all of them are written


@kernel
def coverage(s, first):
    """Blocks held without a gap from a run's start, by the copies listed from extent `first` on."""
    ext = s.ext
    if first == NONE:
        return 0
    if ext[first, COPY_NEXT] == NONE:
        return ext[first, END] if ext[first, START] == 0 else 0
    covered = 0
    grown = True
    while grown:
        grown = False
        e = first
        while e != NONE:
            if ext[e, START] <= covered < ext[e, END]:
                covered = ext[e, END]
                grown = True
            e = ext[e, COPY_NEXT]
    return covered


@kernel
def show(s, key, held):
    """Let the index have it that the replica of `key` holds `held` blocks of the run of `key`."""
    mask = s.mask
    run = key // s.cfg[REPLICAS]
    replica = key - run * s.cfg[REPLICAS]
    word = replica // BITS
    partly = (mask.shape[1] >> 1) + word
    bit = 1 << (replica - word * BITS)
    if held >= s.run_len[run]:
        mask[run, word] |= bit
    else:
        mask[run, word] &= ~bit
    if 0 < held < s.run_len[run]:
        mask[run, partly] |= bit
        s.pool[SEEN_LIVE] += put(s.seen, key, held)
    elif mask[run, partly] & bit:
        mask[run, partly] &= ~bit
        drop_slot(s.seen, find_slot(s.seen, key))
        s.pool[SEEN_LIVE] -= 1


@kernel(inline="always")
def _held(s, key):
    """Blocks of the run of `key`, held in part, that the router takes the replica of `key` to hold."""
    return get(s.seen, key, 0)


@kernel(inline="always")
def _all_of(s, view, flights, run, word):
    """Mask of the replicas that hold all of a run, or are to compute it."""
    return s.mask[run, word] | view.flying[run, word] if flights else s.mask[run, word]


@kernel(inline="always")
def _part_of(s, view, flights, run, word):
    """Mask of the replicas that hold a part of a run, or are to compute one, but not all of it."""
    partly = (s.mask.shape[1] >> 1) + word
    if flights:
        whole = s.mask[run, word] | view.flying[run, word]
        return (s.mask[run, partly] | view.flying[run, partly]) & ~whole
    return s.mask[run, partly]


@kernel(inline="always")
def _held_or_flying(s, view, flights, run, r):
    """Blocks of a run, from its start, that replica r holds or is to compute."""
    held = _held(s, run * s.cfg[REPLICAS] + r)
    if flights:
        partly = (s.mask.shape[1] >> 1) + r // BITS
        if view.flying[run, partly] >> (r % BITS) & 1:
            held = max(held, view.flown_blk[run])
    return held


@kernel
def longest_match(s, view, path, limit):
    """Longest prefix of a prompt that some replica holds.

    Parameters
    ----------
    s : State
    view : View
        ``view.best`` is made the mask of the replicas that hold that much; all of them if nobody holds
        anything.
    path : int
        First entry of the prompt in ``s.path``.
    limit : int
        Blocks of the prompt that may be matched, all of them on shared runs.

    Returns
    -------
    int
        Blocks matched.
    """
    best = view.best
    words = s.mask.shape[1] >> 1
    flights = knows_of_flights(view)
    fill(best, s.cfg[ACTIVE])
    depth = 0
    while depth < limit:
        run = s.path[path]
        length = min(s.run_len[run], limit - depth)
        holders = 0
        for word in range(words):
            holders |= best[word] & _all_of(s, view, flights, run, word)
        if holders == 0 or length < s.run_len[run]:
            return depth + _longest_part(s, view, run, length)
        for word in range(words):
            best[word] &= _all_of(s, view, flights, run, word)
        depth += length
        path += 1
    return depth


@kernel
def _longest_part(s, view, run, length):
    """Narrow ``view.best`` to those that hold most of the first `length` blocks of a run; returns how many.

    If none of them holds any, it stays as it is.
    """
    best = view.best
    words = s.mask.shape[1] >> 1
    flights = knows_of_flights(view)
    most = 0
    for word in range(words):
        if best[word] & _all_of(s, view, flights, run, word):
            most = length
        left = best[word] & _part_of(s, view, flights, run, word)
        while left and most < length:
            replica = word * BITS + lowest_bit(left)
            left &= left - 1
            most = max(most, min(length, _held_or_flying(s, view, flights, run, replica)))
    if most == 0:
        return 0
    for word in range(words):
        keep = best[word] & _all_of(s, view, flights, run, word) if most == length else 0
        left = best[word] & _part_of(s, view, flights, run, word)
        while left:
            low = left & -left
            if _held_or_flying(s, view, flights, run, word * BITS + lowest_bit(left)) >= most:
                keep |= low
            left ^= low
        best[word] = keep
    return most


@kernel
def every_match(s, view, path, limit):
    """Tokens of a prompt's prefix that each replica holds.

    Parameters
    ----------
    s : State
    view : View
        ``view.match`` gets the tokens, ``view.found`` is made the mask of the replicas with a match.
    path, limit : int
        As for `longest_match`.
    """
    best = view.best
    match = view.match
    found = view.found
    words = s.mask.shape[1] >> 1
    flights = knows_of_flights(view)
    block = s.cfg[BLOCK]
    clear_matches(match, found)
    fill(best, match.shape[0])
    depth = 0
    some = 1
    while depth < limit and some:
        run = s.path[path]
        length = min(s.run_len[run], limit - depth)
        some = 0
        for word in range(words):
            whole = best[word] & _all_of(s, view, flights, run, word)
            part = best[word] & _part_of(s, view, flights, run, word)
            gone = best[word] & ~whole & ~part
            if depth > 0 and gone:
                set_all(match, word, gone, depth * block)
            found[word] |= part | whole
            while part:
                low = part & -part
                r = word * BITS + lowest_bit(part)
                part ^= low
                held = min(length, _held_or_flying(s, view, flights, run, r))
                match[r] = (depth + held) * block
            best[word] = whole
            some |= whole
        depth += length
        path += 1
    for word in range(words):
        if best[word] and depth > 0:
            set_all(match, word, best[word], depth * block)


@kernel(inline="always")
def clear_matches(match, found):
    """Forget the last matches: none are left in `match`, nobody in the mask `found`."""
    for r in range(match.shape[0]):
        match[r] = 0
    for word in range(found.shape[0]):
        found[word] = 0


@kernel(inline="always")
def set_all(match, word, mask, tokens):
    """Give all replicas of a mask's word the same match."""
    begin = word * BITS
    if bit_count(mask) > _MANY:  # several at a time
        part = match[begin : begin + BITS]
        for k in range(part.shape[0]):
            part[k] = tokens if mask >> k & 1 else part[k]
        return
    while mask:
        match[begin + lowest_bit(mask)] = tokens
        mask &= mask - 1
