"""xoshiro256++ and SplitMix64 in Python's integers, and what is drawn from them."""

from __future__ import annotations

import math

WORD = 1 << 64


def rotate_left(x: int, k: int) -> int:
    return (x << k | x >> (64 - k)) % WORD


class Xoshiro:
    """The generator of Blackman and Vigna, line by line."""

    def __init__(self, state: list[int]) -> None:
        self.s = list(state)

    def next(self) -> int:
        s = self.s
        result = (rotate_left((s[0] + s[3]) % WORD, 23) + s[0]) % WORD
        t = (s[1] << 17) % WORD
        s[2] ^= s[0]
        s[3] ^= s[1]
        s[1] ^= s[2]
        s[0] ^= s[3]
        s[2] ^= t
        s[3] = rotate_left(s[3], 45)
        return result

    def uniform(self) -> float:
        return math.ldexp(self.next() >> 11, -53)

    def below(self, n: int) -> int:
        """Draw until the number falls into the part of the range that n divides."""
        if n <= 2**32:
            while True:
                high, low = divmod((self.next() >> 32) * n, 2**32)
                if low >= 2**32 % n:
                    return high
        while True:
            draw = self.next() >> 1
            if draw < 2**63 // n * n:
                return draw % n

    def exponential(self) -> float:
        return -math.log(1.0 - self.uniform())


def mix64(x: int) -> int:
    z = x % WORD
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % WORD
    z = (z ^ z >> 27) * 0x94D049BB133111EB % WORD
    return z ^ z >> 31


def splitmix(key: int, index: int) -> int:
    """Return number `index`, counted from 0, of SplitMix64 seeded with `key`."""
    return mix64(key + (index + 1) * 0x9E3779B97F4A7C15)
