"""Symbols of all prompts of a file, and the ways to make them that need no hash ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fastsim.workloads.csr import gather


@dataclass(frozen=True)
class Paths:
    """Symbols of n prompts in CSR form, the tokens of each symbol, and the symbol of each answer or -1."""

    ptr: np.ndarray
    symbols: np.ndarray
    symbol_tok: np.ndarray
    answer: np.ndarray

    @classmethod
    def none(cls, n: int) -> Paths:
        """Prompts that share nothing."""
        nothing = np.empty(0, dtype=np.int64)
        return cls(np.zeros(n + 1, dtype=np.int64), nothing, nothing, np.full(n, -1, dtype=np.int64))

    @classmethod
    def of(cls, paths: Sequence[Sequence[int]], symbol_tok: Sequence[int], answer: Sequence[int]) -> Paths:
        """Prompts given as lists of symbols."""
        ptr = np.cumsum([0, *map(len, paths)])
        symbols = np.fromiter((s for path in paths for s in path), dtype=np.int64, count=int(ptr[-1]))
        return cls(ptr, symbols, np.array(symbol_tok, np.int64), np.array(answer, np.int64))

    def beside(self, other: Paths) -> Paths:
        """Both, where each prompt has symbols in one of them at most."""
        if not len(other.symbol_tok):
            return self
        if not len(self.symbol_tok):
            return other
        n, width = len(self.answer), len(self.symbol_tok)
        ptr = np.concatenate((self.ptr, other.ptr[1:] + self.ptr[-1]))
        values = np.concatenate((self.symbols, other.symbols + width))
        theirs = np.diff(other.ptr) > 0
        new_ptr, symbols = gather(ptr, values, np.where(theirs, np.arange(n, 2 * n), np.arange(n)))
        answer = np.where(other.answer >= 0, other.answer + width, self.answer)
        return Paths(new_ptr, symbols, np.concatenate((self.symbol_tok, other.symbol_tok)), answer)


def group_prefixes(groups: Sequence[str], length: np.ndarray) -> Paths:
    """Return the symbols of prompts that start with so many tokens of their group's prefix.

    Parameters
    ----------
    groups : sequence of str, length n
        Empty where there is none.
    length : ndarray of int64, shape (n,)
        Tokens of the prefix. Of two lengths in one group the shorter is the start of the longer.
    """
    lengths: dict[str, set[int]] = {}
    for group, tokens in zip(groups, length.tolist(), strict=True):
        if group and tokens:
            lengths.setdefault(group, set()).add(tokens)
    symbol_tok: list[int] = []
    upto: dict[tuple[str, int], list[int]] = {}
    for group, known in lengths.items():
        path: list[int] = []
        below = 0
        for tokens in sorted(known):
            path = [*path, len(symbol_tok)]
            symbol_tok.append(tokens - below)
            upto[group, tokens] = path
            below = tokens
    paths = [upto.get(key, []) for key in zip(groups, length.tolist(), strict=True)]
    return Paths.of(paths, symbol_tok, [-1] * len(paths))
