"""Which requests follow each other: sessions told from prompts that grow."""

from __future__ import annotations

import numpy as np

from fastsim.workloads import cache
from fastsim.workloads.workload import Workload


def sessions_of(workload: Workload, *, cached: bool = False) -> np.ndarray:
    """Return a session number for every request: those given, else derived from shared prefixes.

    Where sessions are given for some requests, each of the others is a session of its own. Where none is,
    requests that follow each other are one.

    Parameters
    ----------
    workload : Workload
    cached : bool
        Keep derived sessions on disk, for they take longer than reading a trace.

    Returns
    -------
    ndarray of int64, shape (n,)
        Numbers from 0 on, dense, in order of first appearance.
    """
    given = workload.session
    if (given >= 0).any():
        return _dense(np.where(given >= 0, given, given.max() + 1 + np.arange(len(given))))
    if workload.is_closed:
        return _dense(chain_starts(workload.follows))
    if not cached:
        return derive_sessions(workload)
    key = cache.key_of("sessions", workload.digest())
    kept = cache.fetch(key)
    if kept is not None and kept.get("session", given[:0]).shape == given.shape:
        return kept["session"]
    derived = derive_sessions(workload)
    cache.store(key, {"session": derived})
    return derived


def derive_sessions(workload: Workload) -> np.ndarray:
    """Tell sessions from prompts.

    A request continues the session of the earlier request that first had the longest list of leading symbols
    they share, if that makes up more than half of its prompt's tokens; else it opens a session of its own.

    Returns
    -------
    ndarray of int64, shape (n,)
    """
    symbol_tok = workload.symbol_tok.tolist()
    symbols = workload.symbols.tolist()
    bounds = workload.symbol_ptr.tolist()
    width = len(symbol_tok)
    # A trie of all prompts so far: (node * width + symbol) -> child. Node 0 is the root.
    child: dict[int, int] = {}
    creator = [-1]
    session: list[int] = []
    opened = 0
    for i, prompt_tok in enumerate(workload.prompt_tok.tolist()):
        node, place, end, matched_tok = 0, bounds[i], bounds[i + 1], 0
        while place < end and (below := child.get(node * width + symbols[place])) is not None:
            node = below
            matched_tok += symbol_tok[symbols[place]]
            place += 1
        if 2 * matched_tok > prompt_tok:
            session.append(session[creator[node]])
        else:
            session.append(opened)
            opened += 1
        for symbol in symbols[place:end]:
            child[node * width + symbol] = node = len(creator)
            creator.append(i)
    return np.array(session, dtype=np.int64)


def chain_starts(follows: np.ndarray) -> np.ndarray:
    """Return, for every request, the one that the chain of those it follows starts with."""
    start = np.where(follows >= 0, follows, np.arange(len(follows)))
    while True:
        further = start[start]
        if (further == start).all():
            return start
        start = further


def _dense(names: np.ndarray) -> np.ndarray:
    """Renumber 0, 1, 2, ... in the order of first appearance."""
    _, first, which = np.unique(names, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[which]
