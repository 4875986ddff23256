"""Kernels of the reports that replicas send to the routers: a ring of rows in the order of time.

A report is written when it happens; when a router gets it is the view's affair (`_look`).
"""

from __future__ import annotations

from fastsim._jit import kernel
from fastsim.cluster._state import (
    ALPHA,
    BETA,
    DECODING,
    EXT_LIVE,
    FREE,
    FS,
    G_ALPHA,
    G_BETA,
    G_DECODING,
    G_FREE,
    G_FS,
    G_PS,
    G_RUNNING,
    G_RUNS,
    G_STEPS,
    G_WAITING,
    G_WORK,
    GAUGES,
    KIND,
    N_EVENTS,
    N_RUNNING,
    N_WAITING,
    NEWS,
    NEWS_CACHES,
    NEWS_GAUGE,
    NEWS_GAUGES,
    NEWS_KIND,
    NEWS_PS,
    NEWS_READ,
    NEWS_TOLD,
    NEWS_VALUE,
    NEWS_WHAT,
    NEWS_WHERE,
    PS,
    RUN,
    STEPS,
)


@kernel
def has_room(s, r):
    """Whether the ring has room for all that one event of replica r may report.

    Every request that runs may finish, and all changes of its cache may be published; those of the last steps
    of a run, every extent being evicted or registered, are still to be made.
    """
    unread = s.pool[NEWS_TOLD] - s.pool[NEWS_READ]
    most = 2 * s.rep[r, N_RUNNING] + 8
    if s.cfg[NEWS] & NEWS_CACHES:  # whoever runs may evict a part of an extent and register a block, too
        most += s.events[r, N_EVENTS] + 2 * s.rep[r, N_RUNNING] + s.pool[EXT_LIVE] + 2 * s.hits.shape[0]
    return unread + most <= s.news.shape[0]


@kernel
def tell(s, ps, kind, what, where, value):
    """Write a report; returns its row."""
    row = s.pool[NEWS_TOLD] & (s.news.shape[0] - 1)
    s.pool[NEWS_TOLD] += 1
    news = s.news
    news[row, NEWS_PS] = ps
    news[row, NEWS_KIND] = kind
    news[row, NEWS_WHAT] = what
    news[row, NEWS_WHERE] = where
    news[row, NEWS_VALUE] = value
    return row


@kernel(inline="always")
def tell_of_request(s, ps, kind, i, r, value, bit):
    """Report something of request i if anybody wants to hear of it."""
    if s.cfg[NEWS] & bit:
        tell(s, ps, kind, i, r, value)


@kernel
def write_gauges(s, r, table, row, base):
    """Write what replica r would report of itself into a row of a table, from column `base` on."""
    rep = s.rep
    table[row, base + G_WAITING] = rep[r, N_WAITING]
    table[row, base + G_RUNNING] = rep[r, N_RUNNING]
    table[row, base + G_FREE] = rep[r, FREE]
    table[row, base + G_WORK] = s.work[r]
    table[row, base + G_RUNS] = 1 if rep[r, KIND] == RUN else 0
    table[row, base + G_PS] = rep[r, PS]
    table[row, base + G_FS] = rep[r, FS]
    table[row, base + G_ALPHA] = rep[r, ALPHA]
    table[row, base + G_BETA] = rep[r, BETA]
    table[row, base + G_STEPS] = rep[r, STEPS]
    table[row, base + G_DECODING] = rep[r, DECODING]


@kernel
def tell_gauges(s, r, ps):
    """Report replica r's gauges, if anybody wants to see them late."""
    if s.cfg[NEWS] & NEWS_GAUGES:
        row = tell(s, ps, GAUGES, 0, r, 0)
        write_gauges(s, r, s.news, row, NEWS_GAUGE)
