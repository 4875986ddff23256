"""Kernels that throw balls into bins: many trials a call, and of each the fullest bin.

Bins are int32: with 100,000 of them the counts then stay in the second-level cache, which is worth a third of
the time.
"""

from __future__ import annotations

from fastsim._jit import kernel
from fastsim.queueing.draws import load, pick, save, step, unit
from fastsim.rng import u64


@kernel(inline="always")
def fullest(bins):
    """Return the largest entry."""
    most = bins[0]
    for j in range(bins.size):
        most = max(most, bins[j])
    return most


@kernel
def one_choice(state, bins, balls, most):
    """Fill ``most``, int64[trials], with the fullest of ``bins``, int32[m], of balls thrown at random."""
    s0, s1, s2, s3 = load(state)
    span = u64(bins.size)
    for trial in range(most.size):
        bins[:] = 0
        for _ in range(balls):
            j, s0, s1, s2, s3 = pick(s0, s1, s2, s3, span)
            bins[j] += 1
        most[trial] = fullest(bins)
    save(state, s0, s1, s2, s3)


@kernel
def two_choices(state, bins, balls, most):
    """As `one_choice`, but each ball takes the emptier of two bins, the first drawn if tied."""
    s0, s1, s2, s3 = load(state)
    span = u64(bins.size)
    for trial in range(most.size):
        bins[:] = 0
        for _ in range(balls):
            j, s0, s1, s2, s3 = pick(s0, s1, s2, s3, span)
            other, s0, s1, s2, s3 = pick(s0, s1, s2, s3, span)
            j = other if bins[other] < bins[j] else j
            bins[j] += 1
        most[trial] = fullest(bins)
    save(state, s0, s1, s2, s3)


@kernel(inline="always")
def choose(s0, s1, s2, s3, bins, d, beta, left, deck):
    """Return the bin for a ball, and the generator's state.

    The ball sees ``d`` bins with probability ``beta``, else one: random ones; distinct ones if ``deck`` is a
    permutation of the bins, shuffled as far as needed; or with ``left`` one of each d-th of the bins. It
    takes the emptiest, the first seen if tied.
    """
    m = bins.size
    sees = d
    if beta < 1.0:
        bits, s0, s1, s2, s3 = step(s0, s1, s2, s3)
        if unit(bits) >= beta:
            sees = 1
    best = u64(0)
    for k in range(sees):
        if left:
            start = k * m // d
            drawn, s0, s1, s2, s3 = pick(s0, s1, s2, s3, u64((k + 1) * m // d - start))
            j = u64(u64(start) + drawn)
        elif deck.size > 0:
            drawn, s0, s1, s2, s3 = pick(s0, s1, s2, s3, u64(m - k))
            card = u64(u64(k) + drawn)
            j = u64(deck[card])
            deck[card] = deck[k]
            deck[k] = j
        else:
            j, s0, s1, s2, s3 = pick(s0, s1, s2, s3, u64(m))
        if k == 0 or bins[j] < bins[best]:
            best = j
    return best, s0, s1, s2, s3


@kernel
def any_choices(state, bins, balls, d, beta, left, deck, most):
    """As `one_choice` for any rule of `choose`."""
    s0, s1, s2, s3 = load(state)
    for trial in range(most.size):
        bins[:] = 0
        for _ in range(balls):
            j, s0, s1, s2, s3 = choose(s0, s1, s2, s3, bins, d, beta, left, deck)
            bins[j] += 1
        most[trial] = fullest(bins)
    save(state, s0, s1, s2, s3)


@kernel
def weighted_choices(state, bins, weights, d, beta, left, deck):
    """Throw balls of the given ``weights``, float64[n], into ``bins``, float64[m]; return the fullest."""
    s0, s1, s2, s3 = load(state)
    for i in range(weights.size):
        j, s0, s1, s2, s3 = choose(s0, s1, s2, s3, bins, d, beta, left, deck)
        bins[j] += weights[i]
    save(state, s0, s1, s2, s3)
    return fullest(bins)
