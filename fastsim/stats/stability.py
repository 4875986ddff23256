"""Is the offered load at or above capacity? Told from the two where they are known.

Offered load over capacity is the verdict: it does not depend on how long a run is, and grows with the rate.
The drift of the number in the system is a second opinion, for a run whose capacity nobody has measured, and
for a trace that is overloaded for an hour and not in the mean.
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsim.errors import InputError
from fastsim.stats.intervals import finite_values

MIN_REQUESTS = 100  # fewer hold less than four arrivals a block
BLOCKS = 20
HIGHEST_SCORE = math.sqrt(BLOCKS)  # every increment the same
SLOWDOWN = 1.4  # least growth of the time to clear the system that counts as overload
NEAR = 0.03  # offered loads this close to 1 cannot be told from it: capacity is measured to about 1 %


def is_below_capacity(offered_load: float | None, *, refuses: bool = False) -> bool:
    """Whether a backlog stays bounded, by the load offered.

    Parameters
    ----------
    offered_load : float or None
        Offered rate over capacity; None where all requests come at one time, which is above any capacity.
    refuses : bool
        Whether requests are refused rather than let the backlog grow: it is bounded at any load then.
    """
    return refuses or (offered_load is not None and offered_load < 1.0)


def load_state(offered_load: float | None, *, refuses: bool = False) -> str:
    """The verdict in words: "stable", "near capacity" (within 3 % of it, on either side) or "unstable"."""
    if not refuses and offered_load is not None and abs(offered_load - 1.0) <= NEAR:
        return "near capacity"
    return "stable" if is_below_capacity(offered_load, refuses=refuses) else "unstable"


def is_stable(arrival_s: ArrayLike, done_s: ArrayLike) -> bool:
    """Whether one run shows no sign of overload.

    Parameters
    ----------
    arrival_s : array_like, shape (n,)
        Arrival times in seconds, not decreasing.
    done_s : array_like, shape (n,)
        Departure times in seconds, request by request; infinite or NaN for a request that never finished.

    Returns
    -------
    bool
        False when `backlog_score` exceeds 2.0, a one-sided t-test at the 2 % point. Runs of fewer than 100
        requests, or shorter than about two latencies, cannot tell and count as stable.

    Raises
    ------
    InputError
        Lengths that differ, or arrival times that are not finite or decrease.

    Notes
    -----
    The test leans towards "stable": a false alarm takes a good P99 away. A single short run cannot tell a few
    percent of overload from a long busy period; `point_is_stable` takes a point's replications together.
    Percentage called overloaded, 4,000 runs of M/M/1 from an empty start (tests/study/stability.py):

        utilisation        0.8    0.9   0.95   1.05    1.2      2
        300 requests      0.07   0.33   1.35   10.2   44.7   96.2
        600               0      0.03   0.90   12.2   72.0   99.7
        2,000             0      0      0.10   25.2   99.4    100
        10,000            0      0      0      77.9    100    100
        50,000            0      0      0       100    100    100

    M/M/4 and M/M/16 differ by no more than chance and half a percentage point below capacity. Equal sizes are
    told better (16 servers, 600 requests: 0.30 % at 0.95, 92.8 % at 1.2), widely spread ones worse (squared
    coefficient of variation 4: 4.3 % and 57.5 %).
    """
    return point_is_stable([backlog_score(arrival_s, done_s)])


def point_is_stable(scores: ArrayLike) -> bool:
    """Whether the replications of one point, taken together, show no sign of overload.

    Parameters
    ----------
    scores : array_like, shape (r,)
        `backlog_score` of each independent replication.

    Returns
    -------
    bool
        False when the mean score exceeds 0.8 + 1.2 / sqrt(r): 2.0 for one run, 1.07 for twenty.

    Raises
    ------
    InputError
        No scores, or scores that are not finite.

    Notes
    -----
    The number in a critically loaded queue grows like a reflected Brownian motion, whose mean score from an
    empty start is at most sqrt(2 / pi) = 0.80 with standard deviation 0.60; below capacity the mean is
    smaller and tends to 0 with the length of the run, above it tends to sqrt(20). The mean of r scores
    therefore tells overload that no single run can. Percentage of points of 20 runs of M/M/1 at utilisation
    1.05 called overloaded: 4 with runs of 300 requests, 14 with 600, 80 with 2,000, 100 with 10,000; at 1.2
    at least 99, at 0.95 and below none, for every length (200 points each, tests/study/stability.py).
    """
    z = finite_values(scores, "scores")
    return float(z.mean()) <= 0.8 + 1.2 / math.sqrt(z.size)


def backlog_score(arrival_s: ArrayLike, done_s: ArrayLike) -> float:
    """Growth of the number in the system, in units of its own fluctuation.

    Parameters
    ----------
    arrival_s, done_s : array_like, shape (n,)
        As for `is_stable`.

    Returns
    -------
    float
        Dimensionless, within +-sqrt(20); large when the number in the system grows steadily.

    Notes
    -----
    The number in the system N is read at the ends of 20 blocks of equally many arrivals that cover the last
    three quarters of the run (the first quarter fills the system). The score is z = sum(d) / sqrt(sum(d^2))
    over the 20 increments d, a monotone function of the t statistic of their mean, t = z sqrt(19 / (20 -
    z^2)). Testing increments and not levels is the slope test that holds where it matters: close to
    capacity N is nearly a random walk, its levels regress on anything, its increments are independent;
    further below capacity they cancel and z shrinks.

    A long busy period, a system that is still filling, and a rising but affordable rate also let N grow. So
    a positive score counts only if the time to clear the system, N divided by the departure rate, is in the
    last quarter 1.4 times that of the second quarter; otherwise it is 0. While there are free servers
    departures keep up with N and this time stays put; past capacity the departure rate is stuck and the
    time grows with N. No order of service is assumed.

    Sources: increments of a random walk, Granger and Newbold, Journal of Econometrics 2 (1974) (levels
    mislead); N / departure rate is Little's law with the departure rate in the place of the arrival rate.
    """
    arrival = finite_values(arrival_s, "arrival_s")
    done = np.asarray(done_s, dtype=np.float64).ravel()
    if done.size != arrival.size:
        raise InputError(
            f"done_s has {done.size} values and arrival_s has {arrival.size}; both need one a request"
        )
    if (np.diff(arrival) < 0.0).any():
        raise InputError("arrival_s decreases; requests must stand in order of arrival")
    n = arrival.size
    if n < MIN_REQUESTS:
        return 0.0
    departed = np.searchsorted(np.sort(done), arrival, side="right")
    in_system = np.arange(1, n + 1) - departed
    increments = np.diff(in_system[np.linspace(n // 4, n - 1, BLOCKS + 1).astype(np.int64)])
    fluctuation = math.sqrt(float(increments @ increments))
    score = float(increments.sum()) / fluctuation if fluctuation else 0.0
    if score > 0.0 and not _clears_slower(arrival, departed, in_system):
        return 0.0
    return score


def _clears_slower(
    arrival_s: NDArray[np.float64], departed: NDArray[np.int64], in_system: NDArray[np.int64]
) -> bool:
    """Whether the time to clear the system grew from the second to the last quarter of the run."""
    n = arrival_s.size

    def mean_number_and_departures_per_s(first: int, last: int) -> tuple[float, float]:
        span_s = arrival_s[last] - arrival_s[first]
        rate = (departed[last] - departed[first]) / span_s if span_s > 0.0 else 0.0
        return float(in_system[first : last + 1].mean()), float(rate)

    early, early_rps = mean_number_and_departures_per_s(n // 4, n // 2)
    late, late_rps = mean_number_and_departures_per_s(3 * n // 4, n - 1)
    return late * early_rps > SLOWDOWN * early * late_rps
