"""Words of warning on traces that are legal but may not mean what they seem to."""

from __future__ import annotations

import numpy as np

from fastsim.workloads.readers.blocks import Blocks
from fastsim.workloads.readers.columns import Columns

_PARTS = 10
_RAMP = 5  # a first or last tenth of the span with this many times fewer requests than the busiest
_LEAST_IN_BUSIEST = 20  # fewer are no evidence: Poisson arrivals give a false alarm in 1 of 1,000 traces
_BUSY_RPS = 1000.0  # several times what the busiest public traces run at


def of_rate(arrival_s: np.ndarray) -> tuple[str, ...]:
    """Warn of a rate that ramps up at the start or down at the end, with the profile.

    Parameters
    ----------
    arrival_s : ndarray of float64, shape (n,)
        Ascending.
    """
    span_s = float(arrival_s[-1] - arrival_s[0])
    if span_s <= 0:
        return ()
    counts = np.histogram(arrival_s, bins=_PARTS, range=(arrival_s[0], arrival_s[-1]))[0]
    most = int(counts.max())
    ends = [
        f"{verb} at {100 * count / most:.2g} % of its {when} rate"
        for verb, count, when in (("opens", counts[0], "later"), ("ends", counts[-1], "earlier"))
        if most >= _LEAST_IN_BUSIEST and _RAMP * count < most
    ]
    if not ends:
        return ()
    profile = ", ".join(f"{count * _PARTS / span_s:.3g}" for count in counts)
    what = " and ".join(ends)
    return (f"warning: the trace {what}; requests/s in tenths of its span: {profile}",)


def of_unit(unit: str, stated: bool, arrival_s: np.ndarray) -> tuple[str, ...]:
    """Warn of times in ms that make an unheard-of rate."""
    n, span_s = len(arrival_s), float(arrival_s.max() - arrival_s.min())
    if stated or unit != "ms" or n < 2 or span_s <= 0 or (n - 1) / span_s <= _BUSY_RPS:
        return ()
    return (
        f"warning: in ms, the published unit, the trace runs at {(n - 1) / span_s:,.4g} requests/s; if its "
        f"times are in s, state time_unit = 's'",
    )


def of_ids(columns: Columns, blocks: Blocks, symbols: np.ndarray, symbol_tok: np.ndarray) -> tuple[str, ...]:
    """Warn of hash ids with several lengths, and of ids that stand behind several prefixes.

    Parameters
    ----------
    columns : Columns
        With ids that fit `blocks`.
    blocks : Blocks
    symbols, symbol_tok : ndarray of int64
        As from `to_symbols`.
    """
    assert columns.id_ptr is not None
    assert columns.ids is not None
    return (*_of_lengths(columns, blocks), *_of_prefixes(columns.id_ptr, symbols, len(symbol_tok)))


def _of_lengths(columns: Columns, blocks: Blocks) -> tuple[str, ...]:
    """An id whose last block is partial in one prompt, and longer in another."""
    assert columns.id_ptr is not None
    assert columns.ids is not None
    rest = columns.prompt_tok % blocks.block_tok
    short = np.flatnonzero((rest > 0) & (np.diff(columns.id_ptr) > 0))
    if not blocks.partial or not len(short):
        return ()
    last = columns.id_ptr[1:][short] - 1
    ids, tok = columns.ids[last], rest[short]
    full = np.ones(len(columns.ids), dtype=bool)
    full[last] = False
    by_id = np.lexsort((tok, ids))
    ids, tok, rows = ids[by_id], tok[by_id], short[by_id]
    twice = (ids[1:] == ids[:-1]) & (tok[1:] != tok[:-1])
    lengths = np.unique(ids[1:][twice])
    both = np.unique(ids[np.isin(ids, columns.ids[full])])
    several = np.union1d(lengths, both)
    if not len(several):
        return ()
    row = rows[np.isin(ids, several)].min()
    return (
        f"warning: hash ids of a partial block in one prompt and a longer one in another: "
        f"{len(several):,} (first: line {columns.line[row]}, {rest[row]} of {blocks.block_tok} tokens); "
        "their contents differ, so they share nothing",
    )


def _of_prefixes(ptr: np.ndarray, symbols: np.ndarray, size: int) -> tuple[str, ...]:
    """An id that stands for a block and all before it has the same id before it wherever it stands."""
    if not len(symbols):
        return ()
    before = np.empty_like(symbols)
    before[1:] = symbols[:-1]
    before[ptr[:-1][np.diff(ptr) > 0]] = -1
    usual = np.empty(size, dtype=np.int64)
    usual[symbols[::-1]] = before[::-1]  # of several writes to one place the last one stays
    odd = usual[symbols] != before
    if not odd.any():
        return ()
    count = len(np.unique(symbols[odd]))
    return (
        f"warning: hash ids that stand behind different prefixes: {count:,}; so an id does not stand for all "
        "before it, and prompts share blocks as far as their lists of ids agree from the first on",
    )
