"""How often stable queues are called overloaded, and overloaded ones are found.

The table in the docstring of fastsim.stats.stability.is_stable comes from here.

Run as ``python -m tests.study.stability [runs]``; 4,000 runs a cell take about ten minutes.
"""

from __future__ import annotations

import sys

import numpy as np

from fastsim.stats.stability import backlog_score, point_is_stable
from tests.study.queues import run

LENGTHS = (300, 600, 2_000, 10_000, 50_000)
UTILISATIONS = (0.8, 0.9, 0.95, 1.05, 1.2, 2.0)
POINT = 20  # replications of a point


def scores(
    runs: int, n: int, utilisation: float, *, servers: int = 1, sizes: str = "exponential", seed: int = 1
) -> np.ndarray:
    """Backlog scores of independent runs."""
    rng = np.random.default_rng([seed, n, servers, round(1000 * utilisation)])
    return np.array(
        [backlog_score(*run(rng, n, utilisation, servers=servers, sizes=sizes)) for _ in range(runs)]
    )


def called_overloaded(score: np.ndarray, replications: int) -> float:
    """Share of points of so many replications that are called overloaded."""
    points = score[: len(score) // replications * replications].reshape(-1, replications)
    return float(np.mean([not point_is_stable(row) for row in points]))


def main(runs: int = 4_000) -> None:
    """Print the percentage called overloaded, for single runs and for points of 20 replications."""
    for servers, sizes in (
        (1, "exponential"),
        (4, "exponential"),
        (16, "exponential"),
        (16, "deterministic"),
        (16, "hyperexponential"),
    ):
        print(f"\n{servers} servers, {sizes} sizes: % called overloaded, one run / {POINT} runs together")
        print("requests" + "".join(f"{u:>14}" for u in UTILISATIONS))
        for n in LENGTHS:
            cells = []
            for u in UTILISATIONS:
                z = scores(runs, n, u, servers=servers, sizes=sizes)
                cells.append(f"{100 * called_overloaded(z, 1):7.2f}/{100 * called_overloaded(z, POINT):6.1f}")
            print(f"{n:8d}" + "".join(cells), flush=True)


if __name__ == "__main__":
    main(*(int(a) for a in sys.argv[1:]))
