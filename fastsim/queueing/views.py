"""What a dispatcher knows of the queues: now, some time ago, or only what it has sent itself.

A board holds a score a server, the lower the better. There is one board, or one a dispatcher where
dispatchers know different things. Old information comes in Mitzenmacher's models ("How useful is old
information?", IEEE TPDS 11(1), 2000): a board refreshed every period, servers that post their own state now
and then, and arrivals that see the state as it was some time ago.
"""

from __future__ import annotations

from fastsim._jit import kernel
from fastsim.queueing import ties
from fastsim.rng import below, exponential, uniform

LIVE, PERIODIC, INDIVIDUAL, CONTINUOUS, OWN = range(5)  # kinds of view
COUNT, WORK, DELAY = range(3)  # scores: requests, time to finish all work, time to finish one more request
CONSTANT, UNIFORM, EXPONENTIAL = range(3)  # laws of ages and of the time between posts, by their mean
FULL, SAMPLE, IDLE, GIVEN = range(4)  # rules: least score, least of d, an idle one or any, as told

# How a dispatcher works: places in the array `how` that kernels take.
DISCIPLINE, RULE, KIND, SCORE, D, MEMORY, ADD_OWN, LAW, BOARDS, LISTS, TREES = range(11)
N_HOW = 11

LONGEST = (1.0, 2.0, 36.75)  # longest age over its mean, by law; -log(2^-53) bounds the exponential's draws

NEXT, PERIOD, REFRESHES = 0, 1, 2  # View.clock
HEAD, OLDEST = 0, 1  # View.ring


@kernel(inline="always")
def spread(state, law, mean):
    """Draw an age or a time between posts."""
    if law == UNIFORM:
        return 2.0 * mean * uniform(state)
    if law == EXPONENTIAL:
        return mean * exponential(state)
    return mean


@kernel(inline="always")
def true_score(j, u, servers, score):
    """Score of a server at time u, with no event after u."""
    if score == COUNT:
        return float(servers.count[j])
    if score == WORK:
        return max(0.0, servers.free[j] - u)
    return (servers.count[j] + 1.0) * servers.pace[j]


@kernel
def past_score(j, u, servers, view, score):
    """Score of a server at time u, changes after u undone."""
    count = servers.count[j]
    free = servers.free[j]
    mask = view.past_time.size - 1
    change = view.last[j]
    while change >= view.ring[OLDEST] and view.past_time[change & mask] > u:
        count = view.past_count[change & mask]
        free = view.past_free[change & mask]
        change = view.past_link[change & mask]
    if score == COUNT:
        return float(count)
    if score == WORK:
        return max(0.0, free - u)
    return (count + 1.0) * servers.pace[j]


@kernel(inline="always")
def remember_change(j, t, servers, view):
    """Write down server j's state before it changes at time t."""
    mask = view.past_time.size - 1
    change = view.ring[HEAD]
    view.past_time[change & mask] = t
    view.past_count[change & mask] = servers.count[j]
    view.past_free[change & mask] = servers.free[j]
    view.past_link[change & mask] = view.last[j]
    view.last[j] = change
    view.ring[HEAD] = change + 1


@kernel
def forget(t, longest, view):
    """Move the oldest change that may be asked for up to the first within the longest age before t."""
    mask = view.past_time.size - 1
    while view.ring[OLDEST] < view.ring[HEAD] and view.past_time[view.ring[OLDEST] & mask] <= t - longest:
        view.ring[OLDEST] += 1


@kernel(inline="always")
def set_score(j, k, score, view, how):
    """Write a score on board k."""
    leaves = view.low.size // (2 * how[BOARDS])
    if how[TREES]:
        ties.put(view.low, view.ties, 2 * leaves * k, leaves, j, score)
    else:
        view.low[2 * leaves * k + leaves + j] = score


@kernel(inline="always")
def board_score(j, k, view, how):
    """Read a score from board k."""
    leaves = view.low.size // (2 * how[BOARDS])
    return view.low[2 * leaves * k + leaves + j]


@kernel
def refresh(u, updates, servers, view, how):
    """Write what is to be seen from time u on: all servers (periodic), or the one that posts (individual)."""
    boards = how[BOARDS]
    if how[KIND] == INDIVIDUAL:
        leaves = view.post_low.size >> 1
        j = ties.tied(view.post_low, view.post_ties, 0, leaves, 0)
        for k in range(boards):
            set_score(j, k, true_score(j, u, servers, how[SCORE]), view, how)
        after = u + spread(updates, how[LAW], view.clock[PERIOD])
        ties.put(view.post_low, view.post_ties, 0, leaves, j, after)
        view.clock[NEXT] = view.post_low[1]
        return
    leaves = view.low.size // (2 * boards)
    for k in range(boards):
        for j in range(servers.count.size):
            view.low[2 * leaves * k + leaves + j] = true_score(j, u, servers, how[SCORE])
        if how[TREES]:
            ties.build(view.low, view.ties, 2 * leaves * k, leaves)
    view.clock[REFRESHES] += 1.0
    view.clock[NEXT] = (view.clock[REFRESHES] + 1.0) * view.clock[PERIOD]


@kernel(inline="always")
def _show_own(j, k, change, amount, servers, view, how):
    """Change board k by one request of its own dispatcher, come (+1) or gone (-1)."""
    if how[SCORE] == COUNT:
        amount = 1.0
    elif how[SCORE] == DELAY:
        amount = servers.pace[j]
    score = board_score(j, k, view, how) + change * amount
    if how[KIND] == OWN:
        at = k * servers.count.size + j
        view.own[at] += change
        if view.own[at] == 0:  # exactly what an empty server scores, whatever was rounded on the way
            score = servers.pace[j] if how[SCORE] == DELAY else 0.0
    set_score(j, k, score, view, how)


@kernel
def show_arrival(j, k, service, servers, view, how):
    """Update what is seen after dispatcher k sent a request to server j."""
    kind = how[KIND]
    if how[LISTS]:
        if board_score(j, k, view, how) == 0.0:  # taken off the list of idle servers
            set_score(j, k, 1.0, view, how)
            view.listed[j] = 0
    elif kind == LIVE:
        if how[TREES]:
            set_score(
                j,
                0,
                servers.free[j] if how[SCORE] == WORK else true_score(j, 0.0, servers, how[SCORE]),
                view,
                how,
            )
    elif kind == OWN or how[ADD_OWN]:
        _show_own(j, k, 1, service, servers, view, how)


@kernel
def show_departure(j, k, service, updates, servers, view, how):
    """Update what is seen after a request that dispatcher k had sent left server j."""
    kind = how[KIND]
    if how[LISTS]:
        if servers.count[j] == 0 and view.listed[j] == 0:  # it reports to a dispatcher at random
            view.listed[j] = 1
            set_score(j, below(updates, how[BOARDS]), 0.0, view, how)
    elif kind == LIVE:
        if how[TREES] and how[SCORE] != WORK:
            set_score(j, 0, true_score(j, 0.0, servers, how[SCORE]), view, how)
    elif kind == OWN:
        _show_own(j, k, -1, service, servers, view, how)
