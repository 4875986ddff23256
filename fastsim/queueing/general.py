"""Any dispatcher, any view of the queues, FCFS or processor sharing, event by event.

The kernels of `live` and `blind` do the common cases several times faster.
"""

from __future__ import annotations

import math

from fastsim._jit import kernel
from fastsim.queueing import station as st
from fastsim.queueing import ties, views
from fastsim.rng import below


@kernel
def catch_up(t, updates, servers, station, view, how):
    """Let everything happen that is due up to time t; departures come before refreshes at the same time."""
    while True:
        due = station.next_low[1]
        following = view.clock[views.NEXT]
        look = station.looks[0]
        if due <= t and due <= following and due <= look:
            if how[views.KIND] == views.CONTINUOUS:
                leaves = station.next_low.size >> 1
                j = ties.tied(station.next_low, station.next_ties, 0, leaves, 0)
                views.remember_change(j, due, servers, view)
            j, node = st.depart(station, servers, how[views.DISCIPLINE])
            views.show_departure(j, station.owner[node], station.need[node], updates, servers, view, how)
        elif following <= t and following <= look:
            views.refresh(following, updates, servers, view, how)
        elif look <= t:
            for j in range(servers.count.size):
                station.lengths[servers.count[j]] += 1
            station.looks[0] += station.looks[1]
        else:
            return


@kernel(inline="always")
def seen_score(j, k, u, servers, view, how):
    """Score of server j as dispatcher k sees it; u is the time looked back to."""
    if how[views.KIND] == views.LIVE:
        return views.true_score(j, u, servers, how[views.SCORE])
    if how[views.KIND] == views.CONTINUOUS:
        return views.past_score(j, u, servers, view, how[views.SCORE])
    return views.board_score(j, k, view, how)


@kernel
def draw_candidates(routing, k, view, how, servers):
    """Write d random servers and the remembered one, if any, to ``view.scratch``, and return how many."""
    drawn = how[views.D]
    deck = view.deck
    for c in range(drawn):
        if deck.size == 0:
            view.scratch[c] = below(routing, servers)
        else:
            at = c + below(routing, servers - c)
            chosen = deck[at]
            deck[at] = deck[c]
            deck[c] = chosen
            view.scratch[c] = chosen
    if how[views.MEMORY] and view.remembered[k] >= 0:
        view.scratch[drawn] = view.remembered[k]
        drawn += 1
    return drawn


@kernel
def least(candidates, k, u, servers, view, how):
    """Return the first of the least scoring among the candidates in ``view.scratch``."""
    best = -1
    best_score = math.inf
    for c in range(candidates):
        j = view.scratch[c]
        score = seen_score(j, k, u, servers, view, how)
        if best < 0 or score < best_score:
            best = j
            best_score = score
    return best


@kernel
def least_of_all(routing, k, u, servers, view, how):
    """Return a server of least score, ties at random; for the idle rule any server if none has score 0."""
    if how[views.KIND] == views.CONTINUOUS:
        best = math.inf
        count = 0
        for j in range(servers.count.size):
            score = views.past_score(j, u, servers, view, how[views.SCORE])
            if score < best:
                best = score
                count = 0
            if score == best:
                view.scratch[count] = j
                count += 1
        if how[views.RULE] == views.IDLE and best > 0.0:
            return below(routing, servers.count.size)
        return view.scratch[below(routing, count)]
    leaves = view.low.size // (2 * how[views.BOARDS])
    base = 2 * leaves * k
    if how[views.RULE] == views.IDLE and view.low[base + 1] > 0.0:
        return below(routing, servers.count.size)
    return ties.tied(view.low, view.ties, base, leaves, below(routing, view.ties[base + 1]))


@kernel
def dispatch(routing, updates, requests, servers, station, view, how):
    """Serve a stretch of requests; can be called again to go on."""
    at = requests.at
    rule = how[views.RULE]
    for i in range(at.size):
        t = at[i]
        catch_up(t, updates, servers, station, view, how)
        dispatcher = requests.dispatcher[i]
        k = dispatcher if how[views.BOARDS] > 1 else 0
        u = t
        if how[views.KIND] == views.CONTINUOUS:
            u = t - views.spread(updates, how[views.LAW], view.clock[views.PERIOD])
        candidates = 0
        if rule == views.GIVEN:
            j = requests.target[i]
        elif rule == views.SAMPLE:
            candidates = draw_candidates(routing, dispatcher, view, how, servers.count.size)
            j = least(candidates, k, u, servers, view, how)
        else:
            j = least_of_all(routing, k, u, servers, view, how)
        if how[views.KIND] == views.CONTINUOUS:
            views.remember_change(j, t, servers, view)
        service = requests.work[i] * servers.pace[j]
        requests.target[i] = j
        requests.work[i] = service
        requests.wait[i] = st.arrive(j, t, service, dispatcher, station, servers, how[views.DISCIPLINE])
        views.show_arrival(j, k, service, servers, view, how)
        if how[views.MEMORY]:
            view.remembered[dispatcher] = least(candidates, k, u, servers, view, how)
