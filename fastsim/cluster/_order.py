"""Kernels of the local orders that follow the cache: which waiting request a replica tries next.

Requests get their ranks once a step, before any of them is admitted, and only if one could be; the lowest
rank is next, ties in the queue's own order. What the orders are and where they come from: `orders`.
"""

from __future__ import annotations

from fastsim._jit import kernel
from fastsim.cluster._kv import find_hits, most_hit
from fastsim.cluster._state import (
    BLOCK,
    BY_HEAD,
    CYCLING_GROUPS,
    EVENTS,
    FAULT,
    GENERATED,
    GROUP,
    LONGEST_PREFIX,
    MAX_SEQS,
    N_RUNNING,
    N_WAITING,
    NEVER,
    NO_FAULT,
    NONE,
    PATH,
    PRIORITY_GROUPS,
    PROMPT,
    QUEUE,
    QUEUE_A,
    QUEUE_B,
    QUEUE_C,
    QUEUE_NEXT,
    QUOTA,
    RANKED,
    SHARED,
    TURN,
    WAIT_FIRST,
)

# --- priority groups ----------------------------------------------------------------------------------------


@kernel
def group_of(cached_tok, total_tok, groups):
    """Priority group of a request by the share of it that is cached: 63 of 100 is group 6 of 10; at least 1.

    Preble (arXiv:2407.00023), section 3.3; less than one group's share is not covered there.
    """
    return max(1, min(groups, cached_tok * groups // total_tok))


@kernel
def due(take, groups, lowest):
    """Of the next `take` requests, how many are due to the groups from `groups` down to `lowest`.

    Quotas are proportional to the group's number; what does not divide goes to the highest groups.
    """
    whole = groups * (groups + 1)
    part = whole - lowest * (lowest - 1)
    return (take * part + whole - 1) // whole


@kernel
def cycling_group_of(cached_tok, total_tok, groups):
    """Priority group, from 0, as in Preble's code: 0 without a hit, else the share rounded up, less 1."""
    return max(0, (cached_tok * groups + total_tok - 1) // total_tok - 1)


# --- ranking ------------------------------------------------------------------------------------------------


@kernel(inline="always")
def _total_tok(s, i):
    return s.req[i, PROMPT] + s.req[i, GENERATED]


@kernel
def _cached_tok(s, r, i):
    """Tokens that request i would hit if it were admitted now."""
    total = _total_tok(s, i)
    _, blocks, _ = find_hits(s, r, i, most_hit(s, total))
    return min(blocks * s.cfg[BLOCK], total - 1)


@kernel
def rank_waiting(s, r):
    """Give the waiting requests their ranks for the coming step; a fault is noted if that takes more room."""
    rep = s.rep
    rep[r, QUOTA] = min(rep[r, N_WAITING], s.cfg[MAX_SEQS] - rep[r, N_RUNNING])
    rep[r, RANKED] = 1
    if s.cfg[QUEUE] == LONGEST_PREFIX:
        _rank_by_match(s, r)
    elif s.cfg[QUEUE] == PRIORITY_GROUPS:
        _rank_by_group(s, r)
    else:
        _take_turn(s, r)
    if s.pool[FAULT] != NO_FAULT:
        rep[r, RANKED] = 0


@kernel
def _rank_by_match(s, r):
    """SGLang's lpm: the longest match first, those last that had better wait for another's prefix."""
    if s.rep[r, N_WAITING] > s.cfg[QUEUE_A]:
        s.rep[r, RANKED] = BY_HEAD
        return
    i = s.rep[r, WAIT_FIRST]
    while i != NONE:
        cached = _cached_tok(s, r, i)
        s.rank[i] = -cached
        if cached <= s.cfg[QUEUE_B]:
            run = _run_at(s, i, (s.cfg[QUEUE_C] + s.cfg[BLOCK] - 1) // s.cfg[BLOCK])
            if run != NONE:
                if s.mark[run] == s.pool[EVENTS]:
                    s.rank[i] = NEVER
                s.mark[run] = s.pool[EVENTS]
        i = s.req[i, QUEUE_NEXT]


@kernel
def _run_at(s, i, blocks):
    """Run with block number `blocks` of request i: who is on it shares so many. NONE if nobody can."""
    if blocks > min(s.req[i, SHARED], _total_tok(s, i) // s.cfg[BLOCK]):
        return NONE
    path = s.req[i, PATH]
    depth = s.run_len[s.path[path]]
    while depth < blocks:
        path += 1
        depth += s.run_len[s.path[path]]
    return s.path[path]


@kernel
def _rank_by_group(s, r):
    """Preble's paper: each group its quota, unused quota to the groups below, then the rest from the top."""
    groups = s.cfg[QUEUE_A]
    share = s.share
    for group in range(groups + 1):
        share[group] = 0
    i = s.rep[r, WAIT_FIRST]
    while i != NONE:
        group = group_of(_cached_tok(s, r, i), _total_tok(s, i), groups)
        s.rank[i] = group
        share[group] += 1
        i = s.req[i, QUEUE_NEXT]
    taken = 0
    for group in range(groups, 0, -1):
        share[group] = min(share[group], due(s.rep[r, QUOTA], groups, group) - taken)
        taken += share[group]
    i = s.rep[r, WAIT_FIRST]
    while i != NONE:
        group = s.rank[i]
        s.rank[i] = groups - group
        if share[group] == 0:
            s.rank[i] += groups
        else:
            share[group] -= 1
        i = s.req[i, QUEUE_NEXT]


@kernel
def _take_turn(s, r):
    """Preble's code: groups take turns, but for empty ones; a request keeps the group it got first."""
    groups = s.cfg[QUEUE_A]
    rep = s.rep
    filled = 0
    i = rep[r, WAIT_FIRST]
    while i != NONE:
        if s.rank[i] == NONE:
            group = cycling_group_of(_cached_tok(s, r, i), _total_tok(s, i), groups)
            if s.pool[FAULT] != NO_FAULT:
                return
            s.rank[i] = group
        filled |= 1 << s.rank[i]
        i = s.req[i, QUEUE_NEXT]
    group = rep[r, TURN]
    while filled >> group & 1 == 0:
        group = group - 1 if group > 0 else groups - 1
    rep[r, GROUP] = group
    rep[r, TURN] = group - 1 if group > 0 else groups - 1
    rep[r, QUOTA] = (group + 1) * s.cfg[QUEUE_B]


# --- choosing -----------------------------------------------------------------------------------------------


@kernel
def next_waiting(s, r):
    """The waiting request to try next, by the ranks of this step; NONE if none may be admitted any more."""
    rep = s.rep
    if rep[r, QUOTA] == 0:
        return NONE
    best = rep[r, WAIT_FIRST]
    if rep[r, RANKED] == BY_HEAD:
        return best
    if s.cfg[QUEUE] == CYCLING_GROUPS:
        while best != NONE and s.rank[best] != rep[r, GROUP]:
            best = s.req[best, QUEUE_NEXT]
        return best
    i = best
    while i != NONE:
        if s.rank[i] < s.rank[best]:
            best = i
        i = s.req[i, QUEUE_NEXT]
    return best
