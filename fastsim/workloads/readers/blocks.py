"""Hash ids to symbols: how many tokens an id stands for, and which (id, tokens) are the same."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fastsim.workloads.readers.columns import Columns, Complaints, Phrase

# Sizes tried where none is stated: Mooncake's published size, then what engines and other traces use.
_USUAL_TOK = (512, 64, 16, 32, 128, 256, 1024, 2048, 8, 4096, 4, 2, 1)


@dataclass(frozen=True)
class Blocks:
    """Tokens a block and what the last id of a prompt stands for.

    Parameters
    ----------
    block_tok : int
    partial : bool
        The last id stands for the rest of the prompt, however short; else only full blocks have ids and the
        rest is private to its request.
    why : str
    """

    block_tok: int
    partial: bool
    why: str

    def ids_needed(self, prompt_tok: np.ndarray) -> np.ndarray:
        """Return how many ids prompts of these lengths have."""
        full = prompt_tok // self.block_tok
        return full + (prompt_tok % self.block_tok > 0) if self.partial else full


def fit_blocks(
    prompt_tok: np.ndarray, count: np.ndarray, stated: int | None, source: str = "stated by the user"
) -> Blocks:
    """Decide on the block size, the same for all rows, from the prompts' lengths and numbers of ids.

    Parameters
    ----------
    prompt_tok, count : ndarray of int64, shape (n,)
        Tokens and ids of each prompt.
    stated : int, optional
        The block size, where it is known; what the last id stands for is still decided here.
    source : str
        Who says so.
    """
    source = "guessed" if stated is None else source
    sizes = _USUAL_TOK if stated is None else (stated,)
    candidates = [Blocks(size, partial, "") for partial in (True, False) for size in sizes]
    share = [float((b.ids_needed(prompt_tok) == count).mean()) for b in candidates]
    if stated is None and max(share) < 1.0 and (odd := _unusual_size(prompt_tok, count)):
        return odd
    if stated is None and max(share) <= 0.5:
        # No size shows which rows are wrong; the published one has to serve.
        return _explained(candidates[0], "assumed as published", share[0])
    best = int(np.argmax(share))
    chosen = candidates[best]
    fits = {b.block_tok for b, fit in zip(candidates, share, strict=True) if fit == share[best]}
    rivals = ", ".join(map(str, sorted(fits - {chosen.block_tok})))
    return _explained(chosen, source, share[best], f" ({rivals} would fit as well)" if rivals else "")


def _explained(blocks: Blocks, source: str, share: float, also: str = "") -> Blocks:
    last = "the last id may stand for fewer" if blocks.partial else "only full blocks have ids"
    return replace(blocks, why=f"{source}, {100.0 * share:.4g} % of the rows fit{also}; {last}")


def _unusual_size(prompt: np.ndarray, count: np.ndarray) -> Blocks | None:
    """Return the one size that fits all rows, if there is exactly one."""
    if count.min() < 1:
        return None
    # ceil(p / B) = k means p / k <= B < p / (k - 1); floor(p / B) = k means p / (k + 1) < B <= p / k.
    several = count > 1
    below = -(-prompt[several] // (count[several] - 1))
    bounds = {
        True: (int((-(-prompt // count)).max()), int(below.min(initial=np.iinfo(np.int64).max)) - 1),
        False: (int((prompt // (count + 1)).max()) + 1, int((prompt // count).min())),
    }
    found = [Blocks(least, partial, "") for partial, (least, most) in bounds.items() if least == most]
    return _explained(found[0], "guessed, no other size fits", 1.0) if len(found) == 1 else None


def drop_misfits(columns: Columns, blocks: Blocks, complaints: Complaints) -> Columns:
    """Complain about rows whose number of ids does not fit their prompt; return the others."""
    assert columns.id_ptr is not None
    count = np.diff(columns.id_ptr)
    needed = np.where(with_ids(columns), blocks.ids_needed(columns.prompt_tok), 0)
    rule = f"must hold as many ids as fit {columns.prompt_column} and the block size"
    for i in np.flatnonzero(count != needed):
        reason = f"must hold {needed[i]} for {columns.prompt_column} {columns.prompt_tok[i]}"
        reason += f" at {blocks.block_tok} tokens an id, which is {blocks.why.split(',')[0]}"
        if columns.follows is not None and (columns.follows >= 0).any():
            reason += "; if that is only what a turn adds, state turns = 'added'"
        ids = Phrase(f"a list of {count[i]} ids")
        complaints.row(int(columns.line[i]), columns.id_column, ids, reason, rule=rule)
    return columns.keep(count == needed)


def with_ids(columns: Columns) -> np.ndarray:
    """Return a mask of the rows that should have ids: all, save those of sessions in which no row has any."""
    assert columns.id_ptr is not None
    count = np.diff(columns.id_ptr)
    if columns.session is None or (count > 0).all():
        return np.ones(len(count), dtype=bool)
    names = {name for name, ids in zip(columns.session, count, strict=True) if ids > 0}
    return np.array([not name or name in names for name in columns.session], dtype=bool)


def to_symbols(columns: Columns, blocks: Blocks) -> tuple[np.ndarray, np.ndarray]:
    """Return (symbols, tokens of each symbol); equal (id, tokens) are one symbol, numbered as they appear.

    Parameters
    ----------
    columns : Columns
        With ids that fit `blocks`.
    blocks : Blocks
    """
    assert columns.id_ptr is not None
    assert columns.ids is not None
    size = blocks.block_tok
    tok = np.full(len(columns.ids), size, dtype=np.int64)
    key = _narrow(columns.ids)
    rest = columns.prompt_tok % size
    short = np.flatnonzero((rest > 0) & (np.diff(columns.id_ptr) > 0))
    if blocks.partial and len(short):
        last = columns.id_ptr[1:][short] - 1
        tok[last] = rest[short]
        _, which = np.unique(key[last], return_inverse=True)
        _, pair = np.unique(which * size + rest[short], return_inverse=True)
        key[last] = int(key.max()) + 1 + pair
    symbols = _first_seen(key)
    symbol_tok = np.empty(int(symbols.max(initial=-1)) + 1, dtype=np.int64)
    symbol_tok[symbols] = tok
    return symbols, symbol_tok


def _narrow(ids: np.ndarray) -> np.ndarray:
    """Return ids from 0 on in a range not much larger than their number; equal stay equal. Always a copy."""
    if len(ids) == 0:
        return ids.astype(np.int64)
    low, high = int(ids.min()), int(ids.max())
    if high - low > 16 * len(ids) + 1_000_000:
        return np.unique(ids, return_inverse=True)[1].astype(np.int64)
    return ids - low


def _first_seen(key: np.ndarray) -> np.ndarray:
    """Renumber narrow keys 0, 1, 2, ... in the order in which they first appear, without sorting."""
    n = len(key)
    first = np.empty(int(key.max(initial=-1)) + 1, dtype=np.int64)
    place = np.arange(n)
    first[key[::-1]] = place[::-1]  # of several writes to one place the last one stays
    seen_at = first[key]
    number = np.cumsum(seen_at == place)
    number -= 1
    return number[seen_at]
