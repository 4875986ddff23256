"""Kernels that choose among scored replicas."""

from __future__ import annotations

import math

from fastsim._jit import kernel
from fastsim.cluster._scan import highest, lowest, place_in, times_in
from fastsim.rng import below, uniform


@kernel
def choose_least(score, rng, temperature):
    """Replica of least cost, one of equals at random; with a temperature, at random by weight.

    Weights are exp(-cost / ((highest - lowest) temperature)), so a temperature has no unit. One draw if
    several costs are least, or if there is a temperature; none otherwise.
    """
    low = lowest(score)
    if temperature > 0.0:
        high = highest(score)
        if high > low:
            return _choose_by_cost(score, rng, low, 1.0 / ((high - low) * temperature))
    equal = times_in(score, low)
    return place_in(score, low, below(rng, equal) if equal > 1 else 0)


@kernel
def _choose_by_cost(score, rng, low, scale):
    total = 0.0
    for r in range(score.shape[0]):
        total += math.exp((low - score[r]) * scale)
    left = uniform(rng) * total
    for r in range(score.shape[0]):
        left -= math.exp((low - score[r]) * scale)
        if left < 0.0:
            return r
    return score.shape[0] - 1


@kernel
def choose_most(score, rng):
    """Replica of the highest score, one of equals at random: one draw if there are several."""
    high = highest(score)
    equal = times_in(score, high)
    return place_in(score, high, below(rng, equal) if equal > 1 else 0)


@kernel
def choose_by_weight(score, rng):
    """One replica at random, in proportion to its score; scores are not negative. One draw a replica.

    The largest of U^(1 / score) wins (Efraimidis and Spirakis, "Weighted random sampling with a reservoir",
    2006), U uniform in [0, 1).
    """
    chosen = 0
    most = -1.0
    for r in range(score.shape[0]):
        key = uniform(rng)
        key = key ** (1.0 / score[r]) if score[r] > 0.0 else 0.0
        if key > most:
            most = key
            chosen = r
    return chosen
