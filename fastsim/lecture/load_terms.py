"""The terms of basic E2's load cost (P4): E2 as it is, whose scores say what each term came to.

A request has as many costs as replicas are compared: all where it explores, those that hold its prefix where
it exploits. Means are over costs, all alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from fastsim._jit import kernel
from fastsim.cluster._masks import fill
from fastsim.cluster._state import BITS
from fastsim.cluster.config import Cluster
from fastsim.cluster.routers import _preble_window as win
from fastsim.cluster.routers import preble as pr
from fastsim.cluster.routers.registry import ROUTERS, router
from fastsim.cluster.routers.tree import BLOCK_TOK, tree_match, tree_matches
from fastsim.cluster.routers.view import PROMPT_TOK
from fastsim.cluster.simulate import simulate
from fastsim.lecture import cluster_runs as runs

__all__ = ["terms"]

NAME = "e2_terms"
TERMS = ("L", "M", "P", "M > 0")
REPLICAS = 4  # there is a score a replica, which must do for all sums
_SHARE = 1 / 8  # of one count, by which another that is less than 8 goes into the same score


@kernel
def _candidates(view, request):
    """Let ``view.best`` have the replicas whose costs E2 compares."""
    pr.renew_window(view)
    pr.prepare(view, request)
    tree_matches(view, request)
    cached_tok = tree_match(view, request) * view.tree[BLOCK_TOK]
    if 2 * cached_tok <= view.prompt[PROMPT_TOK]:
        fill(view.best, view.load.shape[0])


def e2_terms(view, request):
    """E2, its scores being sums over the costs it compares: L, M, P, how many, and those with any M."""
    _candidates(view, request)
    load_s, eviction_s, missed_s = 0.0, 0.0, 0.0
    costs, evicting = 0, 0
    for r in range(view.load.shape[0]):
        if view.best[r // BITS] >> (r % BITS) & 1:
            cached_tok = min(view.match[r], view.prompt[PROMPT_TOK])
            m_s = win.eviction_s(view, request, r, view.prompt[PROMPT_TOK] - cached_tok, False)
            load_s += view.real[r]
            eviction_s += m_s
            missed_s += pr.missed_ps(view, cached_tok) * 1e-12
            evicting += m_s > 0.0
            costs += 1
    chosen = pr.decide(view, request)
    view.score[0] = load_s
    view.score[1] = eviction_s
    view.score[2] = missed_s
    view.score[3] = costs + _SHARE * evicting
    return chosen


@contextmanager
def _registered() -> Iterator[None]:
    """Make it a router for as long as it is needed: it is none that anyone would deploy."""
    usual = ROUTERS["e2"]
    router(
        NAME,
        needs=usual.needs,
        params=usual.params,
        heard=pr.hear,
        memory=usual.memory,
        real=usual.real,
        tree=usual.tree,
    )(e2_terms)
    try:
        yield
    finally:
        del ROUTERS[NAME]


def terms(traffic: runs.Traffic, workers: int) -> dict[str, NDArray[np.float64]]:
    """Mean terms of the costs that basic E2 compares, in seconds, and the share of costs with any M.

    Returns
    -------
    dict of str to float64[seeds]
        The keys are `TERMS`.
    """
    from joblib import Parallel, delayed

    with _registered():
        first = _means(traffic, 0)  # compiles, before threads start
        pool = Parallel(n_jobs=workers, backend="threading")
        found = np.array([first, *pool(delayed(_means)(traffic, n) for n in range(1, runs.START))])
    return dict(zip(TERMS, found.T, strict=True))


def _means(traffic: runs.Traffic, replicate: int) -> NDArray[np.float64]:
    cluster = Cluster(REPLICAS, engine="lecture")
    asked = runs.requests(traffic, replicate)
    log = simulate(asked, cluster, NAME, seed=runs.SEED, replicate=replicate, record=True).log
    assert log is not None
    return means(log["score"])


def means(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """`TERMS`, means over all costs, of the sums float64[requests, 4] that `e2_terms` leaves."""
    costs = np.floor(scores[:, 3])
    evicting = (scores[:, 3] - costs) / _SHARE
    return np.array([*scores[:, :3].sum(axis=0), evicting.sum()]) / costs.sum()
