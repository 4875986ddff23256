"""Random streams: one named stream per purpose, the same bits compiled and not.

A stream is the state of xoshiro256++ (Blackman and Vigna, "Scrambled linear pseudorandom number generators",
ACM Transactions on Mathematical Software 47(4), 2021), seeded by NumPy's `SeedSequence`. Streams are keyed by
seed, replicate and name, never by the policy under test: policies of a point meet the same random numbers.
Draws that must not depend on the order of processing take the counter form, `uniform_at`.
"""

from __future__ import annotations

import math
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

from fastsim._jit import JIT, kernel
from fastsim.errors import InputError

_MASK = (1 << 64) - 1


def _wrap(x: Any) -> int:
    return int(x) & _MASK


# 64-bit arithmetic that wraps: compiled, the machine's; otherwise Python's integers, masked, as NumPy's
# scalars would warn. `_i64` goes back to signed: compiled, int() stays unsigned, and mixing makes floats.
u64: Any = np.uint64 if JIT else _wrap
_i64: Any = np.int64 if JIT else int

_GOLDEN = u64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio, the increment of SplitMix64
_MIX_1 = u64(0xBF58476D1CE4E5B9)
_MIX_2 = u64(0x94D049BB133111EB)
_LOW_32 = u64(0xFFFFFFFF)
_TWO_32 = u64(1 << 32)
_UNIT = 2.0**-53  # spacing of the doubles `uniform` returns


def _seeds(seed: int, replicate: int, name: str) -> np.random.SeedSequence:
    for field, value in (("seed", seed), ("replicate", replicate)):
        if value < 0:
            raise InputError(f"{field} must be 0 or more, not {value}")
    return np.random.SeedSequence([seed, replicate, zlib.crc32(name.encode())])


def stream(seed: int, replicate: int, name: str) -> npt.NDArray[np.uint64]:
    """Return the state of a stream for kernels.

    Parameters
    ----------
    seed, replicate : int
        Not negative.
    name : str
        Purpose: arrivals, sizes, prefix, service, routing, faults.

    Returns
    -------
    uint64[4]
        To be passed to `uniform` and its kin, which change it.

    Raises
    ------
    InputError
        If seed or replicate is negative.
    """
    return np.asarray(_seeds(seed, replicate, name).generate_state(4, np.uint64), dtype=np.uint64)


def generator(seed: int, replicate: int, name: str) -> np.random.Generator:
    """Return NumPy's generator (PCG64) on the same keys, for building workloads outside of kernels."""
    return np.random.Generator(np.random.PCG64(_seeds(seed, replicate, name)))


@kernel(inline="always")
def _rotl(x, k):
    return u64(u64(x << u64(k)) | u64(x >> u64(64 - k)))


@kernel(inline="always")
def next_u64(state):
    """Return the next 64 random bits of a stream; `state` is uint64[4]."""
    s0 = u64(state[0])
    s1 = u64(state[1])
    s2 = u64(state[2])
    s3 = u64(state[3])
    result = u64(_rotl(u64(s0 + s3), 23) + s0)
    shifted = u64(s1 << u64(17))
    s2 ^= s0
    s3 ^= s1
    s1 ^= s2
    s0 ^= s3
    s2 ^= shifted
    state[0] = s0
    state[1] = s1
    state[2] = s2
    state[3] = _rotl(s3, 45)
    return result


@kernel(inline="always")
def uniform(state):
    """Return a float64 in [0, 1), a multiple of 2^-53."""
    return float(next_u64(state) >> u64(11)) * _UNIT


@kernel
def below(state, n):
    """Return an int64 in [0, n), each equally likely; n >= 1.

    Up to n = 2^32 Lemire's multiply and reject on the upper 32 bits ("Fast random integer generation in an
    interval", ACM Transactions on Modeling and Computer Simulation 29(1), 2019); beyond it, the remainder.
    """
    if n <= 4294967296:
        span = u64(n)
        product = u64((next_u64(state) >> u64(32)) * span)
        if product & _LOW_32 < span:
            threshold = u64(_TWO_32 - span) % span
            while product & _LOW_32 < threshold:
                product = u64((next_u64(state) >> u64(32)) * span)
        return _i64(product >> u64(32))
    while True:
        draw = _i64(next_u64(state) >> u64(1))
        rest = draw % n
        if draw - rest <= 9223372036854775807 - (n - 1):
            return rest


@kernel
def exponential(state):
    """Return a standard exponential (mean 1) by inversion, -log(1 - u)."""
    return -math.log(1.0 - uniform(state))


@kernel(inline="always")
def mix64(x):
    """Return 64 well-mixed bits of a 64-bit integer: the finaliser of SplitMix64 (variant 13 of Stafford)."""
    z = u64(x)
    z = u64((z ^ (z >> u64(30))) * _MIX_1)
    z = u64((z ^ (z >> u64(27))) * _MIX_2)
    return u64(z ^ (z >> u64(31)))


@kernel(inline="always")
def hash_bits(x, bits):
    """Return the upper `bits` (1 to 63) of the mixed bits of an integer, as an int64 in [0, 2^bits)."""
    return _i64(mix64(x) >> u64(64 - bits))


@kernel(inline="always")
def bits_of_pair(mixed, index, bits):
    """Return the upper `bits` (1 to 63) of a mix of mixed bits and an index, as an int64 in [0, 2^bits).

    One product an index: for the many indices of one key, as in rendezvous hashing. Increment and factor are
    those of SplitMix64.
    """
    z = u64(u64(mixed) + u64(u64(index) * _GOLDEN))
    return _i64(u64((z ^ (z >> u64(32))) * _MIX_1) >> u64(64 - bits))


@kernel(inline="always")
def bits_at(key, index):
    """Return the 64 bits at place `index` of the counter stream `key`, such as ``stream(...)[0]``."""
    return mix64(u64(u64(key) + u64(u64(index + 1) * _GOLDEN)))


@kernel(inline="always")
def uniform_at(key, index):
    """Return the float64 in [0, 1) at place `index` of the counter stream `key`, asked for in any order."""
    return float(bits_at(key, index) >> u64(11)) * _UNIT
