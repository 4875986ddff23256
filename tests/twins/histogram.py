"""The buckets of fastsim.stats.histogram, found edge by edge with exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction

OCTAVES = 70


def bucket(value: float, bits: int) -> int:
    """0 below 2^-30; then 2^bits equal parts of each octave; the last from 2^40 on and for NaN."""
    if math.isnan(value) or value >= 2.0**40:
        return 1 + OCTAVES * 2**bits
    if value < 2.0**-30:
        return 0
    low, octave = Fraction(1, 2**30), 0
    while Fraction(value) >= 2 * low:
        low, octave = 2 * low, octave + 1
    part = (Fraction(value) - low) / low * 2**bits
    return 1 + octave * 2**bits + part.numerator // part.denominator


def fill(bits: int, values: list[float]) -> dict[int, int]:
    counts: dict[int, int] = {}
    for value in values:
        index = bucket(value, bits)
        counts[index] = counts.get(index, 0) + 1
    return counts
