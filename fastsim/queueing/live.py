"""FCFS servers behind a dispatcher that sees the queues as they are: the fast kernels.

Each serves a stretch of requests and can be called again to go on; records are described in `state`. Indices
are made unsigned before use, as numba asks of every signed one whether it is negative: a sixth of the time.
"""

from __future__ import annotations

import numpy as np

from fastsim._jit import kernel
from fastsim.queueing.calendar import enter
from fastsim.queueing.draws import load, pick, save
from fastsim.rng import u64

_ONE = u64(1)


@kernel(inline="always")
def one_more(j, count, order, place, first):
    """Move server j, unsigned, up by one in the index of counts.

    It changes places with the last server of its count, and thereby becomes the first of the next.
    """
    after = u64(u64(count[j]) + _ONE)
    last = u64(u64(first[after]) - _ONE)
    other = u64(order[last])
    hole = u64(place[j])
    order[hole] = other
    place[other] = hole
    order[last] = j
    place[j] = last
    first[after] = last
    count[j] = after


@kernel(inline="always")
def one_less(j, count, order, place, first):
    """Move server j, unsigned, down by one in the index of counts, and return what is left there.

    It changes places with the first of its count, and thereby becomes the last of the one before.
    """
    before = u64(count[j])
    head = u64(first[before])
    other = u64(order[head])
    hole = u64(place[j])
    order[hole] = other
    place[other] = hole
    order[head] = j
    place[j] = head
    first[before] = u64(head + _ONE)
    count[j] = u64(before - _ONE)
    return u64(before - _ONE)


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
    low = u64(0)
    while first[u64(low + _ONE)] == 0:
        low = u64(low + _ONE)
    for i in range(at.size):
        t = at[i]
        now = np.int64(t * scale)
        while cursor <= now:
            slot = u64(cursor & mask)
            node = slots[slot]
            while node >= 0 and due[u64(node)] <= t and np.int64(due[u64(node)] * scale) <= cursor:
                low = min(low, one_less(u64(host[u64(node)]), count, order, place, first))
                following = link[u64(node)]
                link[u64(node)] = spare
                spare = node
                live -= 1
                node = following
            slots[slot] = node
            cursor += 1
        cursor = now
        chosen, s0, s1, s2, s3 = pick(s0, s1, s2, s3, u64(first[u64(low + _ONE)]))
        j = u64(order[chosen])
        one_more(j, count, order, place, first)
        if first[u64(low + _ONE)] == 0:
            low = u64(low + _ONE)
        service = work[i] * pace[j]
        start = max(free[j], t)
        free[j] = start + service
        target[i] = j
        work[i] = service
        wait[i] = start - t
        node = spare
        spare = link[u64(node)]
        live += 1
        due[u64(node)] = start + service
        host[u64(node)] = j
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
            slot = u64(cursor & mask)
            node = slots[slot]
            while node >= 0 and due[u64(node)] <= t and np.int64(due[u64(node)] * scale) <= cursor:
                count[u64(host[u64(node)])] -= 1
                following = link[u64(node)]
                link[u64(node)] = spare
                spare = node
                live -= 1
                node = following
            slots[slot] = node
            cursor += 1
        cursor = now
        if deck.size == 0:
            j, s0, s1, s2, s3 = pick(s0, s1, s2, s3, u64(free.size))
            for _ in range(d - 1):
                other, s0, s1, s2, s3 = pick(s0, s1, s2, s3, u64(free.size))
                j = other if count[other] < count[j] else j
        else:
            j = u64(0)
            for k in range(d):
                drawn, s0, s1, s2, s3 = pick(s0, s1, s2, s3, u64(free.size - k))
                card = u64(u64(k) + drawn)
                other = u64(deck[card])
                deck[card] = deck[k]
                deck[k] = other
                j = other if k == 0 or count[other] < count[j] else j
        count[j] += 1
        service = work[i] * pace[j]
        start = max(free[j], t)
        free[j] = start + service
        target[i] = j
        work[i] = service
        wait[i] = start - t
        node = spare
        spare = link[u64(node)]
        live += 1
        due[u64(node)] = start + service
        host[u64(node)] = j
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
    leaves = u64(key.size >> 1)
    for i in range(at.size):
        t = at[i]
        j = u64(who[1])
        service = work[i] * pace[j]
        start = max(key[1], t)
        target[i] = j
        work[i] = service
        wait[i] = start - t
        best = start + service
        node = u64(leaves + j)
        key[node] = best
        while node > _ONE:
            rival = u64(node ^ _ONE)
            beaten = key[rival] < best or (key[rival] == best and rival < node)
            best = key[rival] if beaten else best
            j = u64(who[rival]) if beaten else j
            node = u64(node >> _ONE)
            key[node] = best
            who[node] = j
