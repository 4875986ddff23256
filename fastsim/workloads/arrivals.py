"""Arrival processes: renewal processes of rate 1, stretched to the rate wanted.

Every process draws its gaps at rate 1 from its own stream and is scaled afterwards, so two rates see
the same pattern of arrivals (common random numbers across rates) and a longer run starts as a shorter one.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fastsim.errors import InputError, nearest

Gaps = Callable[[np.random.Generator, int, float], np.ndarray]

# The most requests one workload may hold; a rate of 1e9 for an hour is a slip of the pen.
MAX_REQUESTS = 50_000_000


def poisson(rng: np.random.Generator, count: int, cv: float) -> np.ndarray:
    """Exponential gaps of mean 1 (their coefficient of variation is 1, whatever `cv` says)."""
    return rng.standard_exponential(count)


def gamma(rng: np.random.Generator, count: int, cv: float) -> np.ndarray:
    """Gamma gaps of mean 1 and coefficient of variation `cv`: shape 1/cv^2, scale cv^2."""
    shape = 1.0 / (cv * cv)
    return rng.standard_gamma(shape, count) / shape


def deterministic(rng: np.random.Generator, count: int, cv: float) -> np.ndarray:
    """Gaps of exactly 1."""
    return np.ones(count)


PROCESSES: dict[str, Gaps] = {"poisson": poisson, "gamma": gamma, "deterministic": deterministic}


def arrival_times(
    rng: np.random.Generator,
    process: str,
    rate_rps: float,
    *,
    cv: float = 1.0,
    duration_s: float | None = None,
    requests: int | None = None,
) -> np.ndarray:
    """Return arrival times in seconds, the first one gap after 0.

    Parameters
    ----------
    rng : numpy Generator
        A stream for arrivals alone.
    process : {"poisson", "gamma", "deterministic"}
    rate_rps : float
        Requests per second.
    cv : float
        Coefficient of variation of the gaps (gamma only).
    duration_s, requests : float, int
        Arrivals before `duration_s`, or exactly `requests` of them; one of the two.

    Returns
    -------
    ndarray of float64
    """
    if process not in PROCESSES:
        raise InputError(f"arrivals: {process!r} is not known; {nearest(process, PROCESSES)}")
    draw = PROCESSES[process]
    if requests is not None:
        check_count(requests)
        return np.cumsum(draw(rng, requests, cv)) / rate_rps
    if duration_s is None:
        raise InputError("duration_s or requests: one of them must be given")
    return _until(rng, draw, cv, duration_s * rate_rps) / rate_rps


def _until(rng: np.random.Generator, draw: Gaps, cv: float, end: float) -> np.ndarray:
    """Draw gaps until their sum passes `end`; return the times before it.

    Gaps are summed in one go at the end, so that how they were drawn does not show in the last bits.
    """
    check_count(end)
    gaps = draw(rng, 16 + int(1.1 * end), cv)
    while (times := np.cumsum(gaps))[-1] < end:
        gaps = np.concatenate((gaps, draw(rng, len(gaps), cv)))
        check_count(len(gaps))
    return times[: np.searchsorted(times, end, side="left")]


def check_count(count: float) -> None:
    """Raise InputError for more requests than a workload may hold."""
    if count > MAX_REQUESTS:
        raise InputError(f"requests: about {count:.3g} are too many; the most is {MAX_REQUESTS:,}")
