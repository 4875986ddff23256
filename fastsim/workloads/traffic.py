"""When requests come and how long they are: parameters and draws that all synthetic workloads share."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Literal

import msgspec
import numpy as np
from msgspec import Meta
from scipy import special

from fastsim.errors import InputError
from fastsim.workloads.arrivals import arrival_times, check_count

Stream = Callable[[str], np.random.Generator]
Members = Callable[[int], tuple[np.ndarray, np.ndarray]]

PositiveFloat = Annotated[float, Meta(gt=0)]
Cv = Annotated[float, Meta(ge=0, le=10, description="coefficient of variation")]
Tokens = Annotated[float, Meta(ge=1, le=1e8, description="mean, in tokens")]
TokensOrNone = Annotated[float, Meta(ge=0, le=1e8, description="mean, in tokens; 0 leaves the part out")]
Count = Annotated[int, Meta(ge=1)]

DEFAULT_DURATION_S = 600.0


class Traffic(msgspec.Struct, frozen=True, kw_only=True):
    """When requests come. Shared by all workloads.

    Give `duration_s` or `requests`, not both; neither means 600 s. With ``arrivals="trace"`` the times are
    those of the trace file `arrival_trace`, stretched to `rate_rps` and played again from its start where it
    is too short; what is asked does not come from it.
    """

    rate_rps: Annotated[float, Meta(gt=0, le=1e7, description="requests per second")] = 1.0
    duration_s: PositiveFloat | None = None
    requests: Count | None = None
    arrivals: Literal["poisson", "gamma", "deterministic", "trace"] = "poisson"
    arrival_cv: Annotated[float, Meta(ge=0.01, le=20, description="of the gaps, gamma arrivals only")] = 1.0
    arrival_trace: str | None = None


class Sized(Traffic, frozen=True, kw_only=True):
    """Lengths by mean and coefficient of variation, all by one law."""

    length_law: Literal["normal", "lognormal"] = "normal"


def lengths(
    spec: Sized, rng: np.random.Generator, count: int, mean: float, cv: float, least: int = 1
) -> np.ndarray:
    """Draw whole lengths in tokens; what falls below `least` becomes `least`.

    Returns
    -------
    ndarray of int64, shape (count,)
        From a normal law, whose cut at `least` raises the mean where the cv is large, or a lognormal one.
    """
    z = rng.standard_normal(count)
    if spec.length_law == "normal":
        drawn = mean * (1.0 + cv * z)
    else:
        variance = math.log1p(cv * cv)  # of the logarithm
        drawn = mean * np.exp(math.sqrt(variance) * z - 0.5 * variance)
    return np.maximum(np.rint(drawn), least).astype(np.int64)


def mean_length(spec: Sized, mean: float, cv: float, least: int = 1) -> float:
    """Return the mean of what `lengths` draws: the sum of P(length > k) over k = 0, 1, ..."""
    if cv == 0.0:
        return float(max(round(mean), least))
    end = least + math.ceil(mean * (1.0 + 40.0 * cv))
    halves = np.arange(least, end) + 0.5  # a length is above k if what is drawn rounds to k + 1 or more
    if spec.length_law == "normal":
        above = special.ndtr(-(halves / mean - 1.0) / cv)
    else:
        sigma = math.sqrt(math.log1p(cv * cv))
        above = special.ndtr(-(np.log(halves / mean) / sigma + 0.5 * sigma))
    return least + float(above.sum())


def arrivals(spec: Traffic, stream: Stream) -> np.ndarray:
    """Draw the arrival times of single requests, in seconds."""
    duration_s = _duration_s(spec)
    return _not_none(spec, _times(spec, stream, spec.rate_rps, duration_s, spec.requests), duration_s)


def bursts(
    spec: Traffic, stream: Stream, mean_members: float, members: Members
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw the arrival times of bursts of requests (sessions, groups), whose starts are the process's points.

    Parameters
    ----------
    spec : Traffic
        `rate_rps` counts requests; bursts start `mean_members` times more rarely.
    stream : callable
    mean_members : float
        Mean requests a burst.
    members : callable
        Of the number of bursts m: (requests of each burst, time of each request after its burst's start in
        seconds, from 0 on), the same for the first bursts whatever m is.

    Returns
    -------
    arrival_s : ndarray of float64, shape (n,)
        Ascending; requests of one time stand in the order of their bursts.
    which : ndarray of int64, shape (n,)
        The place of each request in the list of all bursts' requests, burst after burst.
    counts : ndarray of int64, shape (m,)
        Requests of each burst, those after the end included.
    """
    duration_s = _duration_s(spec)
    rate_rps = spec.rate_rps / mean_members
    if duration_s is not None:
        check_count(spec.rate_rps * duration_s)
        starts_s = _not_none(spec, _times(spec, stream, rate_rps, duration_s, None), duration_s)
        counts, offset_s = members(len(starts_s))
        times_s = np.repeat(starts_s, counts) + offset_s
        which = np.argsort(times_s, kind="stable")
        which = which[: np.searchsorted(times_s[which], duration_s, side="left")]
        return times_s[which], which, counts
    wanted = spec.requests or 0
    check_count(wanted)
    count = min(wanted, math.ceil(wanted / mean_members) + 1)
    while True:
        # The bursts left out start after `starts_s[count]`: what comes before is complete.
        starts_s = _times(spec, stream, rate_rps, None, count + 1)
        counts, offset_s = members(count)
        times_s = np.repeat(starts_s[:count], counts) + offset_s
        if count == wanted or np.count_nonzero(times_s <= starts_s[count]) >= wanted:
            which = np.argsort(times_s, kind="stable")[:wanted]
            return times_s[which], which, counts
        count = min(wanted, 2 * count)


def _duration_s(spec: Traffic) -> float | None:
    if spec.duration_s is not None and spec.requests is not None:
        raise InputError("duration_s and requests: give one of them, not both")
    return DEFAULT_DURATION_S if spec.duration_s is None and spec.requests is None else spec.duration_s


def _times(
    spec: Traffic, stream: Stream, rate_rps: float, duration_s: float | None, requests: int | None
) -> np.ndarray:
    if (spec.arrivals == "trace") != (spec.arrival_trace is not None):
        raise InputError("arrival_trace: it belongs to arrivals = 'trace'; give both or neither")
    if spec.arrival_trace is not None:
        return _trace_times(spec.arrival_trace, rate_rps, duration_s, requests)
    return arrival_times(
        stream("arrivals"),
        spec.arrivals,
        rate_rps,
        cv=spec.arrival_cv,
        duration_s=duration_s,
        requests=requests,
    )


def _trace_times(path: str, rate_rps: float, duration_s: float | None, requests: int | None) -> np.ndarray:
    """Return the times of a trace's requests at another rate; the first comes at 0.

    Repetitions follow each other after one mean gap, as in `transforms.repeat`.
    """
    from fastsim.workloads.load import load_times

    times = load_times(path)
    n, span_s = len(times), float(times[-1] - times[0])
    if span_s <= 0:
        raise InputError(f"arrival_trace: all requests of {path} come at once, so they have no rate")
    wanted = requests if requests is not None else (duration_s or 0.0) * rate_rps
    check_count(wanted)
    unit = (times - times[0]) * ((n - 1) / span_s)  # one mean gap is 1
    turns = math.ceil(wanted / n) + 1
    all_times = (np.arange(turns)[:, None] * float(n) + unit).ravel() / rate_rps
    return all_times[:requests] if duration_s is None else all_times[all_times < duration_s]


def _not_none(spec: Traffic, times_s: np.ndarray, duration_s: float | None) -> np.ndarray:
    if len(times_s) == 0:
        raise InputError(f"duration_s: nothing arrives within {duration_s} s at {spec.rate_rps} requests/s")
    return times_s
