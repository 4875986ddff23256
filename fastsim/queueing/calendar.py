"""A calendar of departures: the next one in constant time, however many servers there are.

Time is cut into slots, slot s of the array holds the slots s, s + n, s + 2n, ... of time, and each is a list
in order of time. With about as many slots as departures to come, entering and leaving one is a step or two
(Brown, "Calendar queues", Communications of the ACM 31(10), 1988). A departure is a node of a pool:
``due[node]`` its time, ``host[node]`` the server, ``link[node]`` the next in its list or in the list of spare
nodes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastsim._jit import kernel

_SLOTS_CACHED = 1 << 17  # above, finer slots cost more in cache misses than they save in steps


@kernel(inline="always")
def enter(slots, due, link, node, inverse_width):
    """Put a node with its ``due`` time set into its slot, after those due at the same time."""
    time = due[node]
    at = np.int64(time * inverse_width) & (slots.size - 1)
    before = slots[at]
    if before < 0 or due[before] > time:
        link[node] = before
        slots[at] = node
        return
    after = link[before]
    while after >= 0 and due[after] <= time:
        before = after
        after = link[before]
    link[node] = after
    link[before] = node


@kernel
def refile(slots, old_slots, due, link, inverse_width):
    """Move all nodes to a larger set of slots, keeping the order of those due at the same time."""
    for s in range(old_slots.size):
        node = old_slots[s]
        while node >= 0:
            following = link[node]
            enter(slots, due, link, node, inverse_width)
            node = following


class Calendar:
    """The arrays of a calendar, grown between calls of a kernel so that kernels need no bounds.

    Attributes
    ----------
    slots : int64[w]
        First node of each slot, -1 for none; w is a power of two.
    due, host, link
        float64, int64, int64; one entry a node.
    marks : int64[3]
        First spare node, absolute slot that the clock is in, departures to come.
    inverse_width : float
        Slots a time unit.
    """

    def __init__(self, servers: int, rate: float) -> None:
        fine = 8 * servers <= _SLOTS_CACHED
        self.inverse_width = rate * (2.0 if fine else 1.0)
        self.slots = _empty_slots((8 if fine else 2) * servers)
        self.due = np.zeros(0)
        self.host = np.zeros(0, np.int64)
        self.link = np.zeros(0, np.int64)
        self.marks = np.array([-1, 0, 0], dtype=np.int64)

    @property
    def live(self) -> int:
        """Departures to come."""
        return int(self.marks[2])

    def reserve(self, count: int) -> None:
        """Make room for `count` more departures."""
        if self.live + count > self.due.size:
            self._add_nodes(max(self.live + count - self.due.size, self.due.size))
        if self.live > self.slots.size:
            old, self.slots = self.slots, _empty_slots(2 * self.live)
            refile(self.slots, old, self.due, self.link, self.inverse_width)

    def _add_nodes(self, count: int) -> None:
        start = self.due.size
        self.due = np.concatenate([self.due, np.zeros(count)])
        self.host = np.concatenate([self.host, np.zeros(count, np.int64)])
        fresh = np.arange(start + 1, start + count + 1)
        fresh[-1] = self.marks[0]
        self.link = np.concatenate([self.link, fresh])
        self.marks[0] = start


def _empty_slots(least: int) -> NDArray[np.int64]:
    return np.full(1 << max(4, (least - 1).bit_length()), -1, dtype=np.int64)
