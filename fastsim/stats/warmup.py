"""How much of the start of a run to delete: MSER-5, and one truncation for all policies of a point."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsim.errors import InputError
from fastsim.stats.intervals import finite_values

Runs = Sequence[ArrayLike] | NDArray[np.float64]  # one array a replication

BATCH = 5  # the 5 of MSER-5


@dataclass(frozen=True, slots=True)
class Truncation:
    """What to delete from the start of every run.

    Attributes
    ----------
    requests : int
        Leading requests to delete.
    long_enough : bool
        False when the best truncation lies at the limit, half of the run: the run has not settled, and a
        longer one is needed.
    """

    requests: int
    long_enough: bool


def mser5(values: ArrayLike) -> Truncation:
    """Warm-up of one run, or of the average over runs, by the marginal standard error rule on batches of 5.

    Parameters
    ----------
    values : array_like, shape (n,)
        Successive outputs (response times in order of arrival), finite, n >= 10.

    Returns
    -------
    Truncation
        5 d*, where over the k = n // 5 batch means z and 0 <= d <= k / 2

            d* = argmin_d  1 / (k - d)^2  sum_{j > d} (z_j - mean(z_{d+1..k}))^2.

    Raises
    ------
    InputError
        Fewer than 10 values, or values that are not finite.

    Notes
    -----
    Source: White, "An effective truncation heuristic for bias reduction in simulation output", Simulation
    69(6), 1997; White, Cobb and Spratt, Winter Simulation Conference 2000 (batches of 5).
    """
    x = finite_values(values, "values")
    k = x.size // BATCH
    if k < 2:
        raise InputError(f"values has {x.size} entries; MSER-5 needs at least {2 * BATCH}")
    z = x[: k * BATCH].reshape(k, BATCH).mean(axis=1)
    z -= z.mean()  # for the sum of squares' sake: it loses no digits to a large mean
    left = np.arange(k, k - k // 2 - 1, -1.0)  # batches kept for d = 0 .. k // 2
    kept_sum = np.cumsum(z[::-1])[::-1][: left.size]
    kept_squares = np.cumsum((z * z)[::-1])[::-1][: left.size]
    d = int(np.argmin((kept_squares - kept_sum**2 / left) / left**2))
    return Truncation(d * BATCH, long_enough=d < k // 2)


def common_warmup(policies: Sequence[Runs], safety: float = 1.5) -> Truncation:
    """One truncation for every run of every policy of a point, so that all are judged on the same requests.

    Parameters
    ----------
    policies : sequence of sequences of array_like
        ``policies[p][r]`` holds the outputs of policy p in replication r in order of arrival; runs of unequal
        length are cut to the shortest.
    safety : float
        At least 1; the truncation is multiplied by it, up to half of the run.

    Returns
    -------
    Truncation
        The largest of the policies' MSER-5 truncations, times `safety`; long enough only if all are.

    Raises
    ------
    InputError
        No runs, runs shorter than 10, or a safety below 1.

    Notes
    -----
    MSER-5 is applied to the average over replications (Welch's curve), where the start-up shows and the noise
    does not. The largest truncation of single replications grows with their number instead: for 20 runs of
    20,000 requests of M/M/1 at utilisation 0.9 its median is 7,600 requests, that of the average 90.
    """
    if safety < 1.0:
        raise InputError(f"safety is {safety}; it must be at least 1")
    curves = [average_run(runs) for runs in policies]
    if not curves:
        raise InputError("policies is empty; at least one is needed")
    found = [mser5(curve) for curve in curves]
    longest = max(f.requests for f in found)
    limit = min(curve.size for curve in curves) // 2
    return Truncation(min(math.ceil(safety * longest), limit), all(f.long_enough for f in found))


def average_run(runs: Runs) -> NDArray[np.float64]:
    """Mean over replications at each place in the run, in the unit of the runs; cut to the shortest run."""
    if not len(runs):
        raise InputError("runs is empty; at least one replication is needed")
    arrays = [finite_values(run, "runs") for run in runs]
    n = min(a.size for a in arrays)
    return np.mean([a[:n] for a in arrays], axis=0)
