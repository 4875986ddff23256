"""The one path from runs to reported numbers: truncate, reduce each run, put intervals over the runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsim.errors import InputError
from fastsim.stats.intervals import Interval, finite_values, mean_interval, quantiles
from fastsim.stats.warmup import Runs, Truncation, common_warmup

PROBABILITIES = (0.5, 0.9, 0.95, 0.99, 0.999)
FOR_THE_MEAN = 0.925  # the probability whose `run_length` serves the mean


@dataclass(frozen=True, slots=True)
class RunStatistics:
    """One replication after truncation: what a sweep stores as a row.

    Attributes
    ----------
    mean : float
        In the unit of the run.
    quantiles : mapping of float to float
        Probability to order statistic X_(ceil(p n)), in the unit of the run.
    n : int
        Requests kept.
    """

    mean: float
    quantiles: Mapping[float, float]
    n: int


@dataclass(frozen=True, slots=True)
class Summary:
    """Replications of one policy at one point, reduced to intervals.

    Attributes
    ----------
    mean : Interval
        Of the replications' means.
    quantiles : mapping of float to Interval
        Of the replications' quantiles.
    pooled : mapping of float to float
        Quantiles of all kept requests together.
    runs : tuple of RunStatistics
        The replications.
    warmup : Truncation
        What was deleted from every run.
    """

    mean: Interval
    quantiles: Mapping[float, Interval]
    pooled: Mapping[float, float]
    runs: tuple[RunStatistics, ...]
    warmup: Truncation

    def too_short(self) -> tuple[float, ...]:
        """Probabilities whose pooled quantile is further than a quarter half-width from the mean quantile.

        The bias of a replication's quantile falls as 1 / n, so these need longer runs, not more of them.
        """
        return tuple(
            p
            for p, interval in self.quantiles.items()
            if abs(self.pooled[p] - interval.value) > interval.half_width / 4
        )


def reduce_run(values: ArrayLike, warmup: int = 0, ps: Sequence[float] = PROBABILITIES) -> RunStatistics:
    """Mean and quantiles of one replication after deleting its first `warmup` requests.

    Parameters
    ----------
    values : array_like, shape (n,)
        Outputs in order of arrival, finite.
    warmup : int
        Requests to delete, 0 <= warmup < n.
    ps : sequence of float
        Probabilities in (0, 1].

    Raises
    ------
    InputError
        If nothing would be left, or the values or probabilities are not as above.
    """
    x = finite_values(values, "values")
    if not 0 <= warmup < x.size:
        raise InputError(f"warmup is {warmup}; a run of {x.size} requests allows 0 to {x.size - 1}")
    kept = x[warmup:]
    return RunStatistics(
        float(kept.mean()), dict(zip(ps, quantiles(kept, ps).tolist(), strict=True)), kept.size
    )


def summarise(
    runs: Runs,
    *,
    warmup: Truncation | None = None,
    ps: Sequence[float] = PROBABILITIES,
    level: float = 0.95,
) -> Summary:
    """Intervals for the mean and quantiles of a steady state from independent replications.

    Parameters
    ----------
    runs : sequence of array_like, each of shape (n_r,)
        Outputs of each replication in order of arrival, finite, in one unit.
    warmup : Truncation, optional
        From `common_warmup` over all policies of the point; without it that of these runs alone.
    ps : sequence of float
        Probabilities in (0, 1].
    level : float
        Nominal coverage of each interval by itself, in (0, 1).

    Returns
    -------
    Summary
        Mean over replications +- t_{R-1} S / sqrt(R) for the mean and for every quantile.

    Raises
    ------
    InputError
        No runs, a run no longer than the warm-up, or values, probabilities or level out of range.

    Notes
    -----
    Replication/deletion, Law, Simulation Modeling and Analysis, 5th ed., section 9.5.2. A replication's
    quantile is biased by O(1 / n): take runs as long as `run_length` and heed `Summary.too_short`. So taken,
    95 % intervals covered in 93.8 to 96.1 % of 2,000 studies each (P99 and mean of M/M/1, means of M/M/16,
    M/D/1 and M/H2/1, at utilisations 0.5, 0.8 and 0.9; tests/study/coverage.py), each give or take 0.5.
    """
    if not len(runs):
        raise InputError("runs is empty; at least one replication is needed")
    warmup = common_warmup([runs]) if warmup is None else warmup
    reduced = tuple(reduce_run(run, warmup.requests, ps) for run in runs)
    kept: NDArray[np.float64] = np.concatenate(
        [np.asarray(run, np.float64)[warmup.requests :] for run in runs]
    )
    return Summary(
        mean=mean_interval([r.mean for r in reduced], level),
        quantiles={p: mean_interval([r.quantiles[p] for r in reduced], level) for p in ps},
        pooled=dict(zip(ps, quantiles(kept, ps).tolist(), strict=True)),
        runs=reduced,
        warmup=warmup,
    )


def run_length(p: float, utilisation: float, variability: float = 1.0) -> int:
    """Requests to keep in each replication so that the bias of its p-quantile does not spoil the coverage.

    Parameters
    ----------
    p : float
        Probability in (0, 1); `FOR_THE_MEAN` serves for the mean.
    utilisation : float
        Offered load over capacity, in [0, 1).
    variability : float
        (c_a^2 + c_s^2) / 2 from the squared coefficients of variation of gaps and sizes; at least 1 is used.

    Returns
    -------
    int
        60 max(1, variability) / ((1 - p) (1 - utilisation)^2) rounded up, at least 300 / (1 - p).

    Raises
    ------
    InputError
        If an argument is out of its range.

    Notes
    -----
    The memory of a queue, counted in arrivals, grows as variability / (1 - utilisation)^2 whatever the
    number of servers (heavy-traffic limit: Whitt, "Planning queueing simulations", Management Science
    35(11), 1989). The factor 60 is measured for twenty replications: with it intervals for the P99 of M/M/1
    at 0.8 covered in 94.9 % of 2,000 studies, with 20 in 93.4 %. The bias stays while more replications
    narrow the interval, so many of them need longer runs.
    """
    if not 0.0 < p < 1.0:
        raise InputError(f"p is {p}; it must lie in (0, 1)")
    if not 0.0 <= utilisation < 1.0:
        raise InputError(f"utilisation is {utilisation}; it must lie in [0, 1)")
    if not 0.0 <= variability < math.inf:
        raise InputError(f"variability is {variability}; it must be finite and at least 0")
    memory = 60 * max(1.0, variability) / (1 - utilisation) ** 2
    return math.ceil(round(max(memory, 300.0) / (1 - p), 6))  # 1 - 0.925 is not quite 0.075
