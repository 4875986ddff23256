"""Quantiles of runs too long to keep: a histogram with logarithmic buckets that merges exactly.

Buckets split every power of two into equally many parts, as HdrHistogram does (Tene, "HdrHistogram: a high
dynamic range histogram", 2012). The leading bits of a float are the index of such a bucket, so finding it
takes no logarithm and gives the same on every machine.
"""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from fastsim._jit import kernel
from fastsim.errors import InputError
from fastsim.stats.intervals import quantile_rank

LOWEST = 2.0**-30  # 0.93 ns: smaller values, zero among them, count as zero
HIGHEST = 2.0**40  # 35,000 years in seconds: values from here on count as infinite
OCTAVES = 70
_LOWEST_EXPONENT = 1023 - 30  # biased, as stored in a float64
_MANTISSA_BITS = 52


@kernel(inline="always")
def bucket(value, bits):
    """Index of a value's bucket: 0 below LOWEST, 2^bits an octave, the last from HIGHEST on and NaN."""
    # the bits of positive floats are ordered as the floats are; a negative one has a negative index
    index = (np.float64(value).view(np.int64) >> (_MANTISSA_BITS - bits)) - (_LOWEST_EXPONENT << bits) + 1
    return max(0, min(index, 1 + (OCTAVES << bits)))


@kernel
def fill(counts, bits, values):
    """Count each of values, float64[n], into counts, int64[2 + OCTAVES 2^bits]."""
    for i in range(values.size):
        counts[bucket(values[i], bits)] += 1


class QuantileHistogram:
    """Counts of values in buckets of equal relative width; quantiles within a stated error.

    Parameters
    ----------
    relative_error : float
        Bound e wanted, in [2^-21, 1/4]; the bound kept is `error`, the largest power of two not above e.

    Attributes
    ----------
    bits : int
        Octaves have 2^bits = 1 / (2 error) buckets.
    counts : int64 array, shape (2 + 70 * 2^bits,)
        Values a bucket: below 2^-30; equal parts of each octave up to 2^40; beyond. Kernels may count into
        it by `bucket`. 287 kB for the default.
    error : float
        With x the exact order statistic X_(ceil(p n)) and q the quantile given: |q - x| <= error x for x in
        [2^-30, 2^40), q = 0 for x below and q = inf for x beyond. In seconds: from a nanosecond to 35,000
        years.

    Notes
    -----
    The state is a vector of counts: merging is addition, so the result does not depend on how the values were
    spread over runs or in which order they came.
    """

    def __init__(self, relative_error: float = 0.001) -> None:
        if not 2.0**-21 <= relative_error <= 0.25:
            raise InputError(f"relative_error is {relative_error}; it must lie in [{2.0**-21:.2g}, 0.25]")
        self.bits = -math.floor(math.log2(relative_error)) - 1
        self.error = 2.0 ** -(self.bits + 1)
        self.counts = np.zeros(2 + (OCTAVES << self.bits), dtype=np.int64)

    @property
    def n(self) -> int:
        """Values counted."""
        return int(self.counts.sum())

    def add(self, values: ArrayLike) -> None:
        """Count values.

        Parameters
        ----------
        values : array_like, shape (n,)
            Not negative, no NaN.

        Raises
        ------
        InputError
            If a value is negative or NaN; then none is counted.
        """
        x = np.ascontiguousarray(values, dtype=np.float64).ravel()
        if x.size and not x.min() >= 0.0:  # the minimum is NaN if any is
            bad = x[~(x >= 0.0)][0]
            raise InputError(f"values holds {bad:g}; a histogram takes values from 0 up")
        fill(self.counts, self.bits, x)

    def merge(self, other: QuantileHistogram) -> None:
        """Add another's counts to this one's.

        Raises
        ------
        InputError
            If the errors, and so the buckets, differ.
        """
        if other.bits != self.bits:
            raise InputError(
                f"other has error {other.error:g}; only histograms of error {self.error:g} merge"
            )
        self.counts += other.counts

    def to_text(self) -> str:
        """The counts as text, some kilobytes for thousands of values; `from_text` reads it."""
        filled = np.flatnonzero(self.counts)
        pairs = np.stack((np.diff(filled, prepend=0), self.counts[filled])).astype("<i8")
        return f"{self.bits}:{base64.b85encode(zlib.compress(pairs.tobytes())).decode()}"

    @classmethod
    def from_text(cls, text: str) -> QuantileHistogram:
        """The histogram that `to_text` wrote.

        Raises
        ------
        InputError
            If it did not.
        """
        try:
            bits, _, packed = text.partition(":")
            made = cls(2.0 ** -(int(bits) + 1))
            pairs = np.frombuffer(zlib.decompress(base64.b85decode(packed)), dtype="<i8").reshape(2, -1)
            made.counts[np.cumsum(pairs[0])] = pairs[1]
        except (ValueError, IndexError, zlib.error):
            raise InputError(f"{text[:40]!r} is not a histogram") from None
        return made

    def quantile(self, p: float) -> float:
        """Middle of the bucket that holds X_(ceil(p n)), in the unit of the values; see `error`."""
        return self.quantiles((p,))[0]

    def quantiles(self, ps: Sequence[float]) -> list[float]:
        """Several quantiles from one pass over the counts.

        Parameters
        ----------
        ps : sequence of float
            Probabilities in (0, 1].

        Raises
        ------
        InputError
            If nothing was counted or a probability is out of range.
        """
        return [(low + high) / 2 if low > 0.0 else 0.0 for low, high in self.bounds(ps)]

    def bounds(self, ps: Sequence[float]) -> list[tuple[float, float]]:
        """Edges of the buckets that hold the order statistics: low <= X_(ceil(p n)) < high, for certain."""
        up_to = np.cumsum(self.counts)
        if up_to[-1] == 0:
            raise InputError("the histogram is empty; a quantile needs at least one value")
        ranks = [quantile_rank(int(up_to[-1]), p) for p in ps]
        return [self._edges(int(b)) for b in np.searchsorted(up_to, ranks)]

    def _edges(self, index: int) -> tuple[float, float]:
        if index == 0:
            return 0.0, LOWEST
        if index == self.counts.size - 1:
            return HIGHEST, math.inf
        octave, part = divmod(index - 1, 1 << self.bits)
        unit = math.ldexp(LOWEST, octave - self.bits)
        return ((1 << self.bits) + part) * unit, ((1 << self.bits) + part + 1) * unit


def pooled_quantile(histograms: Sequence[str], p: float) -> float:
    """Quantile of all samples of several histograms, each by `QuantileHistogram.to_text`."""
    every = QuantileHistogram.from_text(histograms[0])
    for text in histograms[1:]:
        every.merge(QuantileHistogram.from_text(text))
    return every.quantile(p)
