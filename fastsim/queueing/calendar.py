"""A calendar of departures: the next one in constant time, however many servers there are.

Time is cut into slots, slot s of the array holds the slots s, s + n, s + 2n, ... of time, and each is a list
in order of time. With about as many slots as departures to come, entering and leaving one is a step or two
(Brown, "Calendar queues", Communications of the ACM 31(10), 1988).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsim._jit import kernel
from fastsim.queueing.state import Departures
from fastsim.rng import u64

_SLOTS_CACHED = 1 << 17  # above, finer slots cost more in cache misses than they save in steps


@kernel(inline="always")
def enter(slots, due, link, node, scale):
    """Put a node with its due time set into its slot, after those due at the same time."""
    time = due[u64(node)]
    slot = u64(np.int64(time * scale) & (slots.size - 1))
    before = slots[slot]
    if before < 0 or due[u64(before)] > time:
        link[u64(node)] = before
        slots[slot] = node
        return
    after = link[u64(before)]
    while after >= 0 and due[u64(after)] <= time:
        before = after
        after = link[u64(before)]
    link[u64(node)] = after
    link[u64(before)] = node


@kernel
def refile(departures, old_slots):
    """Move all nodes to new slots, keeping the order of those due at the same time."""
    slots, due, link = departures.slots, departures.due, departures.link
    for s in range(old_slots.size):
        node = old_slots[s]
        while node >= 0:
            following = link[node]
            enter(slots, due, link, node, departures.slots_per_time[0])
            node = following


class Calendar:
    """Grows the arrays of a calendar between calls of a kernel, so that kernels need no bounds.

    Parameters
    ----------
    servers : int
        At most one departure each is expected to be near.
    rate : float
        Departures a time unit.

    Attributes
    ----------
    departures : Departures
        What kernels work on.
    """

    def __init__(self, servers: int, rate: float) -> None:
        fine = 8 * servers <= _SLOTS_CACHED
        self._spare = np.array([-1, 0, 0], dtype=np.int64)
        self._scale = np.array([rate * (2.0 if fine else 1.0)])
        empty = np.zeros(0, np.int64)
        self.departures = self._made(_empty_slots((8 if fine else 2) * servers), np.zeros(0), empty, empty)

    def reserve(self, count: int) -> None:
        """Make room for `count` more departures."""
        now = self.departures
        live, size = int(now.marks[2]), now.due.size
        if live + count > size:
            more = max(live + count - size, size)
            fresh = np.arange(size + 1, size + more + 1)
            fresh[-1] = now.marks[0]
            now.marks[0] = size
            due, host = np.append(now.due, np.zeros(more)), np.append(now.host, np.zeros(more, np.int64))
            now = self._made(now.slots, due, host, np.append(now.link, fresh))
        if live > now.slots.size:
            old = now.slots
            now = self._made(_empty_slots(2 * live), now.due, now.host, now.link)
            refile(now, old)
        self.departures = now

    def _made(
        self,
        slots: NDArray[np.int64],
        due: NDArray[np.float64],
        host: NDArray[np.int64],
        link: NDArray[np.int64],
    ) -> Any:
        return Departures(slots, due, host, link, self._spare, self._scale)


def _empty_slots(least: int) -> NDArray[np.int64]:
    return np.full(1 << max(4, (least - 1).bit_length()), -1, dtype=np.int64)
