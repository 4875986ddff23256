"""The capacity of a cell: measured once for all its seeds and rates, the same bits in every process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
import numpy as np

from fastsim.cluster.capacity import Capacity
from fastsim.cluster.routers import get

REPLICATES = (
    4  # of a synthetic workload: which documents are long and who gets them differs from one to another
)
PRECISION = 0.014  # of each: 0.007 of their mean

T = TypeVar("T")


def together(found: Sequence[Capacity]) -> Capacity:
    """One capacity for several replicates: that at which their mean offered load is 1."""
    if any(one.rps == 0.0 for one in found):  # the router refuses all
        return Capacity(0.0, 0.0, all(one.refuses for one in found), 0)
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

    def get(self, key: Hashable, measure: Callable[[], T]) -> T:
        """What was measured under that key, or is now."""
        with self.lock:
            own = self.locks.setdefault(key, threading.Lock())
        with own:
            if key not in self.kept:
                self.kept[key] = measure()
            return self.kept[key]


ONCE = Once()


def measured(text: str, routers: Iterable[str], kind: Any, measure: Callable[[], T]) -> T:
    """What is measured of a cell, or was in this process; also, on disk, in another one.

    Parameters
    ----------
    text : str
        All that decides it, beside the code.
    routers : iterable of str
        The policies that take part. Those of a user's own may change while the package stays the same, so
        nothing of theirs is kept on disk.
    kind : type
        Of what `measure` returns, for msgspec.
    measure : callable
    """
    policies = tuple(get(name) for name in routers)
    if not all(one.policy.__module__.startswith("fastsim.") for one in policies):
        return ONCE.get((text, policies), measure)
    return ONCE.get((text, policies), lambda: _on_disk(text, kind, measure))


def _on_disk(text: str, kind: Any, measure: Callable[[], T]) -> T:
    from fastsim._jit import SOURCE_DIGEST
    from fastsim.workloads import cache

    key = cache.key_of("capacity", SOURCE_DIGEST, text)
    arrays = cache.fetch(key)
    if arrays is not None:
        try:
            return msgspec.json.decode(arrays["json"].tobytes(), type=kind)
        except (KeyError, msgspec.DecodeError):
            pass  # it is measured again
    found = measure()
    cache.store(key, {"json": np.frombuffer(msgspec.json.encode(found), np.uint8)})
    return found


def in_advance(ask: Callable[[Any], Any], cells: Iterable[Any], jobs: int) -> None:
    """Measure for all cells, several at a time; what fails is told where its point is run."""
    from fastsim._interrupt import in_threads

    def asked(cell: Any) -> None:
        try:
            ask(cell)
        except Exception:
            return

    in_threads(asked, cells, jobs)
