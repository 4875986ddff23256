"""FCFS servers behind a dispatcher that sees the queues as they are: the fast kernels.

Each serves a stretch of requests and can be called again to go on; records are described in `state`.
"""

from __future__ import annotations

import numpy as np

from fastsim._jit import kernel
from fastsim.queueing.calendar import enter
from fastsim.queueing.draws import load, pick, save
from fastsim.rng import u64


@kernel(inline="always")
def one_more(j, count, order, place, first):
    """Move server j up by one in the index of counts.

    It changes places with the last server of its count, and thereby becomes the first of the next.
    """
    c = count[j]
    last = first[c + 1] - 1
    other = order[last]
    hole = place[j]
    order[hole] = other
    place[other] = hole
    order[last] = j
    place[j] = last
    first[c + 1] = last
    count[j] = c + 1


@kernel(inline="always")
def one_less(j, count, order, place, first):
    """Move server j down by one in the index of counts: it changes places with the first of its count."""
    c = count[j]
    head = first[c]
    other = order[head]
    hole = place[j]
    order[hole] = other
    place[other] = hole
    order[head] = j
    place[j] = head
    first[c] = head + 1
    count[j] = c - 1


@kernel
def shortest_queue(state, requests, servers, departures, index):
    """Send each request to a server with the fewest requests, ties at random, in constant time."""
    at, work, target, wait = requests.at, requests.work, requests.target, requests.wait
    pace, free, count = servers.pace, servers.free, servers.count
    slots, due, host, link = departures.slots, departures.due, departures.host, departures.link
    spare, cursor, live = departures.marks[0], departures.marks[1], departures.marks[2]
    scale = departures.slots_per_time[0]
    mask = slots.size - 1
    order, place, first = index.order, index.place, index.first
    s0, s1, s2, s3 = load(state)
    low = 0
    while first[low + 1] == 0:
        low += 1
    for i in range(at.size):
        t = at[i]
        now = np.int64(t * scale)
        while cursor <= now:
            node = slots[cursor & mask]
            while node >= 0 and due[node] <= t and np.int64(due[node] * scale) <= cursor:
                j = host[node]
                one_less(j, count, order, place, first)
                low = min(low, count[j])
                following = link[node]
                link[node] = spare
                spare = node
                live -= 1
                node = following
            slots[cursor & mask] = node
            cursor += 1
        cursor = now
        chosen, s0, s1, s2, s3 = pick(s0, s1, s2, s3, u64(first[low + 1]))
        j = order[chosen]
        one_more(j, count, order, place, first)
        if first[low + 1] == 0:
            low += 1
        service = work[i] * pace[j]
        start = max(free[j], t)
        free[j] = start + service
        target[i] = j
        work[i] = service
        wait[i] = start - t
        node = spare
        spare = link[node]
        live += 1
        due[node] = start + service
        host[node] = j
        enter(slots, due, link, node, scale)
    departures.marks[0] = spare
    departures.marks[1] = cursor
    departures.marks[2] = live
    save(state, s0, s1, s2, s3)


@kernel
def shortest_of_d(state, requests, servers, departures, d, deck):
    """Send each request to the server with the fewest requests of d random ones, the first drawn if tied.

    With an empty ``deck`` the draws are with replacement; otherwise ``deck`` is a permutation of the servers,
    kept from call to call, of which the first d cards are shuffled anew (Fisher and Yates).
    """
    at, work, target, wait = requests.at, requests.work, requests.target, requests.wait
    pace, free, count = servers.pace, servers.free, servers.count
    slots, due, host, link = departures.slots, departures.due, departures.host, departures.link
    spare, cursor, live = departures.marks[0], departures.marks[1], departures.marks[2]
    scale = departures.slots_per_time[0]
    mask = slots.size - 1
    s0, s1, s2, s3 = load(state)
    for i in range(at.size):
        t = at[i]
        now = np.int64(t * scale)
        while cursor <= now:
            node = slots[cursor & mask]
            while node >= 0 and due[node] <= t and np.int64(due[node] * scale) <= cursor:
                count[host[node]] -= 1
                following = link[node]
                link[node] = spare
                spare = node
                live -= 1
                node = following
            slots[cursor & mask] = node
            cursor += 1
        cursor = now
        if deck.size == 0:
            j, s0, s1, s2, s3 = pick(s0, s1, s2, s3, u64(free.size))
            for _ in range(d - 1):
                other, s0, s1, s2, s3 = pick(s0, s1, s2, s3, u64(free.size))
                if count[other] < count[j]:
                    j = other
        else:
            j = -1
            for k in range(d):
                drawn, s0, s1, s2, s3 = pick(s0, s1, s2, s3, u64(free.size - k))
                other = deck[k + drawn]
                deck[k + drawn] = deck[k]
                deck[k] = other
                if j < 0 or count[other] < count[j]:
                    j = other
        count[j] += 1
        service = work[i] * pace[j]
        start = max(free[j], t)
        free[j] = start + service
        target[i] = j
        work[i] = service
        wait[i] = start - t
        node = spare
        spare = link[node]
        live += 1
        due[node] = start + service
        host[node] = j
        enter(slots, due, link, node, scale)
    departures.marks[0] = spare
    departures.marks[1] = cursor
    departures.marks[2] = live
    save(state, s0, s1, s2, s3)


@kernel
def least_work(requests, servers, key, who):
    """Send each request to the server that is free first, of idle ones to that idle longest.

    ``key`` and ``who`` are a tournament over the servers' free times: leaf w + j of 2w is server j, and every
    inner node k repeats the earlier of 2k and 2k + 1, the lower server on a tie; leaves without a server hold
    infinity.
    """
    at, work, target, wait, pace = requests.at, requests.work, requests.target, requests.wait, servers.pace
    leaves = key.size >> 1
    for i in range(at.size):
        t = at[i]
        j = who[1]
        service = work[i] * pace[j]
        start = max(key[1], t)
        target[i] = j
        work[i] = service
        wait[i] = start - t
        best = start + service
        node = leaves + j
        key[node] = best
        while node > 1:
            rival = node ^ 1
            beaten = key[rival] < best or (key[rival] == best and rival < node)
            best = key[rival] if beaten else best
            j = who[rival] if beaten else j
            node >>= 1
            key[node] = best
            who[node] = j
