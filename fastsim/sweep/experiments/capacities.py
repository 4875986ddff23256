"""The capacity of a cell: measured once for all its seeds and rates, the same in every process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fastsim.cluster.capacity import Capacity

REPLICATES = (
    4  # of a synthetic workload: which documents are long and who gets them differs from one to another
)
PRECISION = 0.014  # of each: 0.007 of their mean


def together(found: Sequence[Capacity]) -> Capacity:
    """One capacity for several replicates: that at which their mean offered load is 1."""
    each_s = np.array([1.0 / one.rps for one in found])
    error = np.sqrt(np.mean([(one.error_rps / one.rps) ** 2 for one in found]) / len(found))
    rps = float(1.0 / each_s.mean())
    return Capacity(
        rps, float(error * rps), all(one.refuses for one in found), sum(one.requests for one in found)
    )


@dataclass
class Once:
    """What takes long, kept by key for as long as the process lives; threads wait for the first to ask."""

    kept: dict[Hashable, Any] = field(default_factory=dict)
    locks: dict[Hashable, threading.Lock] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, key: Hashable, measure: Callable[[], Any]) -> Any:
        """What was measured under that key, or is now."""
        with self.lock:
            own = self.locks.setdefault(key, threading.Lock())
        with own:
            if key not in self.kept:
                self.kept[key] = measure()
            return self.kept[key]


ONCE = Once()
