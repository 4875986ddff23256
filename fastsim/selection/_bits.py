"""Sets of questions packed 64 a word, and the kernels that count them over many allocations."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsim._jit import JIT, kernel
from fastsim.rng import u64

Words = NDArray[np.uint64]

WORD = 64  # questions a word
LEVELS = 3  # modules that `count` walks by itself
LEAVES = 1 << LEVELS


def pack(sets: Any) -> Words:
    """Pack bool[..., Q] into uint64[..., ceil(Q / 64)]; the places beyond Q are 0."""
    bits = np.asarray(sets, dtype=np.bool_)
    words = -(-bits.shape[-1] // WORD)
    padded = np.zeros((*bits.shape[:-1], words * WORD), dtype=np.bool_)
    padded[..., : bits.shape[-1]] = bits
    return np.packbits(padded, axis=-1, bitorder="little").view(np.dtype("<u8")).astype(np.uint64)


def _plain_ones(x: Any) -> int:
    return int(x).bit_count()


def _intrinsic_ones() -> Any:
    """LLVM's ctpop, which becomes whatever the processor has: vpopcntq, popcnt, or shifts and adds."""
    from numba import types
    from numba.extending import intrinsic

    @intrinsic
    def ones(typingctx: Any, x: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.ctpop(arguments[0])

        return types.uint64(types.uint64), codegen

    return ones


ones: Any = _intrinsic_ones() if JIT else _plain_ones  # how many bits of a word are 1


@kernel
def count(leaves, success, partner, sizes, four, two, counts):
    """Count right answers for all models of the last three slots, given what is before them.

    Parameters
    ----------
    leaves : uint64[B, 8, W]
        Where the final answer is right, for B assignments of the slots before; the bits of the second index,
        most significant first, say whether each of the last three slots succeeds.
    success : uint64[3, 2 K, W]
        Where model k succeeds; in row K + k, where it does if its slot's partner has the same model.
    partner : int64[B, 3]
        Model of that partner; -1 for none.
    sizes : int64[3]
        Number of models at each level; 1 for a level that is only padding.
    four, two : uint64[4, W], uint64[2, W]
        Scratch.
    counts : int32[B, n]
        Filled: n is the product of the sizes, the last level fastest.
    """
    models = success.shape[1] // 2
    words = leaves.shape[2]
    for b in range(leaves.shape[0]):
        place = 0
        for i in range(sizes[0]):
            row = i + models if partner[b, 0] == i else i
            for leaf in range(4):
                for w in range(words):
                    s = success[0, row, w]
                    four[leaf, w] = (leaves[b, leaf + 4, w] & s) | (leaves[b, leaf, w] & ~s)
            for j in range(sizes[1]):
                row = j + models if partner[b, 1] == j else j
                for leaf in range(2):
                    for w in range(words):
                        s = success[1, row, w]
                        two[leaf, w] = (four[leaf + 2, w] & s) | (four[leaf, w] & ~s)
                for k in range(sizes[2]):
                    row = k + models if partner[b, 2] == k else k
                    total = u64(0)
                    for w in range(words):
                        s = success[2, row, w]
                        total += ones((two[1, w] & s) | (two[0, w] & ~s))
                    counts[b, place] = total
                    place += 1


@kernel
def keep(counts, before, after, first, cheapest, cheapest_at, top):
    """Keep the cheapest allocation for every number of right answers, and those with the most.

    Parameters
    ----------
    counts : int32[B, n]
    before : float64[B]
        Cost of the prefix.
    after : float64[B or 1, n]
        Cost of the rest.
    first : int
        Place of the first prefix.
    cheapest, cheapest_at : float64[Q + 1], int64[Q + 1]
        Lowest cost by right answers, and the place of that allocation; the first of equals stays.
    top : int64[k, 2]
        Right answers and place of the best, in falling order; the first of equals comes first.
    """
    n = counts.shape[1]
    last = top.shape[0] - 1
    for b in range(counts.shape[0]):
        row = b if after.shape[0] > 1 else 0
        place = (first + b) * n
        for i in range(n):
            right = counts[b, i]
            cost = before[b] + after[row, i]
            if cost < cheapest[right]:
                cheapest[right] = cost
                cheapest_at[right] = place + i
            if right > top[last, 0]:
                at = last
                while at > 0 and right > top[at - 1, 0]:
                    top[at, 0] = top[at - 1, 0]
                    top[at, 1] = top[at - 1, 1]
                    at -= 1
                top[at, 0] = right
                top[at, 1] = place + i
