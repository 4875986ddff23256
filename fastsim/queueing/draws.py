"""Kernels that fill arrays with random numbers, the generator's state held in registers.

`fastsim.rng` keeps the state of a stream in an array, which costs a store and a load a draw wherever the
kernel writes to another array; at one to five nanoseconds a draw that is half the time. `step` and `pick` are
its `next_u64` and `below` on four local variables, bit for bit.
"""

from __future__ import annotations

import math

import numpy as np

from fastsim._jit import kernel
from fastsim.rng import u64

_LOW_32 = u64(0xFFFFFFFF)
_TWO_32 = u64(1 << 32)
_UNIT = 2.0**-53
_SQRT_HALF_BITS = 0x3FE6A09E667F3BCD  # of the float64 nearest to sqrt(1/2)
_LN_2_HIGH = float.fromhex("0x1.62e42fefa38p-1")  # 42 bits, so that its multiples by exponents are exact
_LN_2_LOW = float.fromhex("0x1.ef35793c7673p-45")  # the rest
SPAN_MAX = 1 << 32  # `pick` takes spans up to here


@kernel(inline="always")
def step(s0, s1, s2, s3):
    """Return the next 64 bits and the state after them; see `fastsim.rng.next_u64`."""
    total = u64(s0 + s3)
    bits = u64(u64(u64(total << u64(23)) | u64(total >> u64(41))) + s0)
    shifted = u64(s1 << u64(17))
    s2 ^= s0
    s3 ^= s1
    s1 ^= s2
    s0 ^= s3
    s2 ^= shifted
    return bits, s0, s1, s2, u64(u64(s3 << u64(45)) | u64(s3 >> u64(19)))


@kernel(inline="always")
def pick(s0, s1, s2, s3, span):
    """Return a u64 below `span`, u64(1) .. u64(2^32), and the state; see `fastsim.rng.below`."""
    bits, s0, s1, s2, s3 = step(s0, s1, s2, s3)
    product = u64(u64(bits >> u64(32)) * span)
    if product & _LOW_32 < span:
        threshold = u64(_TWO_32 - span) % span
        while product & _LOW_32 < threshold:
            bits, s0, s1, s2, s3 = step(s0, s1, s2, s3)
            product = u64(u64(bits >> u64(32)) * span)
    return u64(product >> u64(32)), s0, s1, s2, s3


@kernel(inline="always")
def unit(bits):
    """Return the float64 in [0, 1) that `fastsim.rng.uniform` makes of 64 bits."""
    return float(np.int64(bits >> u64(11))) * _UNIT


@kernel(inline="always")
def load(state):
    """Return the four words of a stream's state."""
    return u64(state[0]), u64(state[1]), u64(state[2]), u64(state[3])


@kernel(inline="always")
def save(state, s0, s1, s2, s3):
    """Write the four words back into the stream's state."""
    state[0] = s0
    state[1] = s1
    state[2] = s2
    state[3] = s3


@kernel(inline="always")
def minus_log(x):
    """Return -log(x) of a float64 in (0, 1], to two units in the last place.

    With x = 2^k m, m within a factor sqrt(2) of 1, and s = (m - 1) / (m + 1): log m = 2 (s + s^3 / 3 + s^5 /
    5 + ...). Nothing but IEEE arithmetic: the compiler can do several at once, and every machine gets the
    same bits.
    """
    bits = np.float64(x).view(np.int64)
    k = (bits - _SQRT_HALF_BITS) >> 52
    m = np.int64(bits - (k << 52)).view(np.float64)
    s = (m - 1.0) / (m + 1.0)
    z = s * s
    tail = 1 / 13 + z * (1 / 15 + z * (1 / 17 + z * (1 / 19 + z * (1 / 21))))
    series = 1 / 3 + z * (1 / 5 + z * (1 / 7 + z * (1 / 9 + z * (1 / 11 + z * tail))))
    exponent = float(k)
    return -(exponent * _LN_2_HIGH + (exponent * _LN_2_LOW + 2.0 * (s + s * z * series)))


@kernel
def exponentials(state, out, mean):
    """Fill with exponentials by inversion."""
    s0, s1, s2, s3 = load(state)
    for i in range(out.size):
        bits, s0, s1, s2, s3 = step(s0, s1, s2, s3)
        out[i] = 1.0 - unit(bits)
    save(state, s0, s1, s2, s3)
    for i in range(out.size):  # a loop of its own, which the compiler can vectorise
        out[i] = minus_log(out[i]) * mean


@kernel
def poisson_times(state, out, start, mean_gap):
    """Fill with the times of a Poisson process after `start`."""
    exponentials(state, out, mean_gap)
    accumulate(out, start)


@kernel
def accumulate(gaps, start):
    """Turn gaps into times after `start`, in place."""
    t = start
    for i in range(gaps.size):
        t += gaps[i]
        gaps[i] = t


@kernel
def modulated_times(state, out, start, phase, rates, mean_stays):
    """Fill with the times after `start` of a Poisson process whose rate goes round a cycle.

    ``phase`` is float64[2]: the index into ``rates`` now, and the time at which the next one takes over (NaN
    before the first call). Stays are exponential.
    """
    s0, s1, s2, s3 = load(state)
    t = start
    index = int(phase[0])
    until = phase[1]
    if until != until:
        bits, s0, s1, s2, s3 = step(s0, s1, s2, s3)
        until = -math.log(1.0 - unit(bits)) * mean_stays[index]
    i = 0
    while i < out.size:
        # an exponential gap cut by the change of rate starts afresh: it has no memory
        bits, s0, s1, s2, s3 = step(s0, s1, s2, s3)
        gap = math.inf
        if rates[index] > 0.0:
            gap = -math.log(1.0 - unit(bits)) / rates[index]
        if t + gap < until:
            t += gap
            out[i] = t
            i += 1
        else:
            t = until
            index = (index + 1) % rates.size
            bits, s0, s1, s2, s3 = step(s0, s1, s2, s3)
            until = t - math.log(1.0 - unit(bits)) * mean_stays[index]
    phase[0] = index
    phase[1] = until
    save(state, s0, s1, s2, s3)


@kernel
def erlangs(state, out, phases, fewer, phase_mean):
    """Fill with sums of ``phases`` exponentials, one fewer of them with probability ``fewer``."""
    s0, s1, s2, s3 = load(state)
    for i in range(out.size):
        count = phases
        if fewer > 0.0:
            bits, s0, s1, s2, s3 = step(s0, s1, s2, s3)
            if unit(bits) < fewer:
                count -= 1
        total = 0.0
        for _ in range(count):
            bits, s0, s1, s2, s3 = step(s0, s1, s2, s3)
            total -= math.log(1.0 - unit(bits))
        out[i] = total * phase_mean
    save(state, s0, s1, s2, s3)


@kernel
def hyperexponentials(state, out, first, mean_first, mean_second):
    """Fill with exponentials of mean ``mean_first`` with probability ``first``, else of ``mean_second``."""
    s0, s1, s2, s3 = load(state)
    for i in range(out.size):
        bits, s0, s1, s2, s3 = step(s0, s1, s2, s3)
        mean = mean_second
        if unit(bits) < first:
            mean = mean_first
        bits, s0, s1, s2, s3 = step(s0, s1, s2, s3)
        out[i] = -math.log(1.0 - unit(bits)) * mean
    save(state, s0, s1, s2, s3)


@kernel
def lognormals(state, out, mu, sigma):
    """Fill with exp of normals (Box and Muller's transform, its cosine half)."""
    s0, s1, s2, s3 = load(state)
    for i in range(out.size):
        bits, s0, s1, s2, s3 = step(s0, s1, s2, s3)
        radius = math.sqrt(-2.0 * math.log(1.0 - unit(bits)))
        bits, s0, s1, s2, s3 = step(s0, s1, s2, s3)
        out[i] = math.exp(mu + sigma * (radius * math.cos(2.0 * math.pi * unit(bits))))
    save(state, s0, s1, s2, s3)


@kernel
def weibulls(state, out, shape, scale):
    """Fill with Weibull numbers by inversion."""
    s0, s1, s2, s3 = load(state)
    power = 1.0 / shape
    for i in range(out.size):
        bits, s0, s1, s2, s3 = step(s0, s1, s2, s3)
        out[i] = scale * math.pow(-math.log(1.0 - unit(bits)), power)
    save(state, s0, s1, s2, s3)


@kernel
def paretos(state, out, alpha, low, share):
    """Fill with Pareto numbers from ``low`` by inversion; ``share`` = 1 - (low / high)^alpha is kept."""
    s0, s1, s2, s3 = load(state)
    power = -1.0 / alpha
    for i in range(out.size):
        bits, s0, s1, s2, s3 = step(s0, s1, s2, s3)
        out[i] = low * math.pow(1.0 - unit(bits) * share, power)
    save(state, s0, s1, s2, s3)


@kernel
def resampled(state, out, values):
    """Fill with draws from ``values``, with replacement."""
    s0, s1, s2, s3 = load(state)
    span = u64(values.size)
    for i in range(out.size):
        at, s0, s1, s2, s3 = pick(s0, s1, s2, s3, span)
        out[i] = values[at]
    save(state, s0, s1, s2, s3)
