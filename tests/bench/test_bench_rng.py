"""Random numbers drawn in a kernel, against NumPy drawing as many at once."""

from __future__ import annotations

import numpy as np

from fastsim import rng
from fastsim._jit import kernel

DRAWS = 1_000_000


@kernel
def total(state, draws):
    result = 0.0
    for _ in range(draws):
        result += rng.uniform(state)
    return result


def test_uniform(benchmark, best_times_s):
    state = rng.stream(0, 0, "routing")
    numpy_generator = np.random.default_rng(0)
    benchmark.pedantic(total, args=(state, DRAWS), rounds=5, warmup_rounds=1)
    jobs = {"kernel": lambda: total(state, DRAWS), "numpy": lambda: numpy_generator.random(DRAWS).sum()}
    best = best_times_s(jobs)
    print(
        f"\nuniform: {best['kernel'] / DRAWS * 1e9:.2f} ns a draw, "
        f"{best['numpy'] / best['kernel']:.1f} times as fast as NumPy"
    )
