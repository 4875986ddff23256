"""The arrays behind `views`, made before a run and grown during it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsim.queueing import ties
from fastsim.queueing.state import View
from fastsim.queueing.views import (
    BOARDS,
    CONSTANT,
    CONTINUOUS,
    DELAY,
    HEAD,
    INDIVIDUAL,
    KIND,
    LAW,
    LISTS,
    LONGEST,
    OLDEST,
    OWN,
    PERIODIC,
    SCORE,
    D,
    forget,
    spread,
)
from fastsim.rng import uniform


class Board:
    """Makes the arrays of a view, and grows its ring of changes between calls of a kernel.

    Parameters
    ----------
    how : int64[N_HOW]
        How the dispatchers work.
    pace : float64[N]
        Time that each server takes for a unit of work.
    dispatchers : int
        How many there are.
    mean : float
        Period, mean age or mean time between posts; ignored for views without.
    updates : uint64[4]
        Random stream for posts.
    deck : bool
        Whether servers are drawn without replacement.

    Attributes
    ----------
    view : View
        What kernels work on.
    """

    def __init__(
        self,
        how: NDArray[Any],
        pace: NDArray[Any],
        dispatchers: int,
        mean: float,
        updates: NDArray[Any],
        deck: bool,
    ) -> None:
        servers, boards = pace.size, int(how[BOARDS])
        low, tied = ties.make_trees(boards, servers, 0.0)
        if how[SCORE] == DELAY:
            _fill_boards(low, tied, pace, boards)
        listed = np.zeros(servers, dtype=np.int64)
        if how[LISTS]:  # idle servers start on the dispatchers' lists in turn
            listed[:] = 1
            for k in range(boards):
                _fill_boards(low, tied, (np.arange(servers) % boards != k).astype(np.float64), boards, k)
        post_low, post_ties = ties.make_trees(1, servers if how[KIND] == INDIVIDUAL else 1, 0.0)
        if how[KIND] == INDIVIDUAL:
            constant = how[LAW] == CONSTANT  # then servers are spread evenly over their period
            first = [mean * uniform(updates) if constant else spread(updates, how[LAW], mean) for _ in pace]
            _fill_boards(post_low, post_ties, np.array(first), 1)
        following = {PERIODIC: mean, INDIVIDUAL: float(post_low[1])}.get(int(how[KIND]), math.inf)
        ring = 1 if how[KIND] != CONTINUOUS else 1024
        self._longest = mean * LONGEST[int(how[LAW])]
        self.view = View(
            low=low,
            ties=tied,
            own=np.zeros(boards * servers if how[KIND] == OWN else 0, dtype=np.int64),
            post_low=post_low,
            post_ties=post_ties,
            clock=np.array([following, mean, 0.0]),
            listed=listed,
            past_time=np.zeros(ring),
            past_count=np.zeros(ring, dtype=np.int64),
            past_free=np.zeros(ring),
            past_link=np.zeros(ring, dtype=np.int64),
            last=np.full(servers, -1, dtype=np.int64),
            ring=np.zeros(2, dtype=np.int64),
            remembered=np.full(dispatchers, -1, dtype=np.int64),
            scratch=np.zeros(servers + int(how[D]) + 1, dtype=np.int64),
            deck=np.arange(servers if deck else 0),
        )

    def reserve(self, now: float, changes: int) -> None:
        """Make room for so many more changes after the time `now`; only the continuous view keeps any."""
        old = self.view
        size = old.past_time.size
        if size == 1:
            return
        forget(now, self._longest, old)
        oldest, head = int(old.ring[OLDEST]), int(old.ring[HEAD])
        if head - oldest + changes <= size:
            return
        wider = 1 << (head - oldest + changes - 1).bit_length()
        kept = np.arange(oldest, head)
        arrays = {name: getattr(old, name) for name in View._numba_type_.fields}
        for name in ("past_time", "past_count", "past_free", "past_link"):
            grown = np.zeros(wider, arrays[name].dtype)
            grown[kept & (wider - 1)] = arrays[name][kept & (size - 1)]
            arrays[name] = grown
        self.view = View(**arrays)


def _fill_boards(
    low: NDArray[Any], tied: NDArray[Any], scores: NDArray[Any], boards: int, only: int = -1
) -> None:
    leaves = low.size // (2 * boards)
    for k in range(boards) if only < 0 else (only,):
        low[2 * leaves * k + leaves :][: scores.size] = scores
        ties.build(low, tied, 2 * leaves * k, leaves)
