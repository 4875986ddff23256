# ruff: noqa: D102 - what the methods of a process return is said once, in `Arrivals`
"""Arrival processes: Poisson, renewal of any variability, Markov-modulated, and a trace's timestamps."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsim.errors import InputError, nearest
from fastsim.queueing import draws
from fastsim.queueing.checks import number, numbers
from fastsim.queueing.laws import Law, law, parse_call, with_cv

__all__ = ["ARRIVALS", "Arrivals", "Modulated", "Poisson", "Renewal", "Timestamps", "arrivals"]

Array = NDArray[np.float64]


class Arrivals:
    """A stream of arrival times.

    Attributes
    ----------
    name : str
        Name in `ARRIVALS`.
    rate : float
        Arrivals per time unit in the long run.
    """

    name: ClassVar[str]
    rate: float

    @property
    def scv(self) -> float:
        """Squared coefficient of variation of the gaps; NaN where gaps depend on one another."""
        return math.nan

    @property
    def count(self) -> int | None:
        """Arrivals there are; None for a process without end."""
        return None

    def at_rate(self, rate: float) -> Arrivals:
        """The same process with time stretched to another rate."""
        raise NotImplementedError

    def memory(self) -> Array:
        """What `fill` keeps from call to call, afresh; its first entry is the time reached."""
        return np.zeros(1)

    def fill(self, state: NDArray[np.uint64], out: Array, memory: Array) -> None:
        """Fill `out`, float64[n], with the next arrival times."""
        raise NotImplementedError


@dataclass(frozen=True)
class Poisson(Arrivals):
    """Independent exponential gaps."""

    name = "poisson"
    rate: float = 1.0

    @property
    def scv(self) -> float:
        return 1.0

    def at_rate(self, rate: float) -> Arrivals:
        return Poisson(rate)

    def fill(self, state: NDArray[np.uint64], out: Array, memory: Array) -> None:
        draws.poisson_times(state, out, memory[0], 1.0 / self.rate)
        memory[0] = out[-1]


@dataclass(frozen=True)
class Renewal(Arrivals):
    """Independent gaps of any law: of a given coefficient of variation, or of a law given by name."""

    name = "renewal"
    rate: float = 1.0
    cv: float = 1.0
    gap: str | Law | None = None

    def __post_init__(self) -> None:
        number("cv", self.cv)
        if not isinstance(self.gap, str | Law | None):
            raise InputError(f"gap is {self.gap!r}; it must be a law such as 'lognormal(cv=2)'")
        _ = self._gaps  # checked now

    @property
    def scv(self) -> float:
        return self._gaps.scv

    @cached_property
    def _gaps(self) -> Law:
        """The law of the gaps, before they are stretched to the rate."""
        return law(self.gap) if self.gap is not None else with_cv(self.cv)

    def at_rate(self, rate: float) -> Arrivals:
        return replace(self, rate=rate)

    def fill(self, state: NDArray[np.uint64], out: Array, memory: Array) -> None:
        self._gaps.fill(state, out)
        out *= 1.0 / (self.rate * self._gaps.mean)
        draws.accumulate(out, memory[0])
        memory[0] = out[-1]


@dataclass(frozen=True)
class Modulated(Arrivals):
    """Poisson with a rate that goes round a cycle of levels, each kept for an exponential time (MMPP).

    Attributes
    ----------
    levels : sequence of float
        Rates relative to one another, not negative, not all zero.
    stays : sequence of float
        Mean time on each level, in the time unit of the sizes; not stretched with the rate.
    """

    name = "modulated"
    rate: float = 1.0
    levels: Sequence[float] = (0.5, 1.5)
    stays: Sequence[float] = (100.0, 100.0)

    def __post_init__(self) -> None:
        levels, stays = numbers("levels", self.levels), numbers("stays", self.stays)
        if levels.ndim != 1 or levels.size == 0 or levels.shape != stays.shape:
            raise InputError(
                f"levels has {levels.size} and stays {stays.size} entries; both need as many, at least 1"
            )
        if not (np.isfinite(levels).all() and levels.min() >= 0.0 and levels.max() > 0.0):
            raise InputError(
                f"levels is {tuple(self.levels)}; they must be finite, not negative and not all zero"
            )
        if not (np.isfinite(stays).all() and stays.min() > 0.0):
            raise InputError(f"stays is {tuple(self.stays)}; every one must be finite and above 0")
        if stays.max() > 1e6 * stays.min():
            raise InputError(f"stays is {tuple(self.stays)}; the longest may be a million times the shortest")

    def at_rate(self, rate: float) -> Arrivals:
        return replace(self, rate=rate)

    def memory(self) -> Array:
        return np.array([0.0, 0.0, math.nan])

    def fill(self, state: NDArray[np.uint64], out: Array, memory: Array) -> None:
        levels, stays = np.asarray(self.levels, np.float64), np.asarray(self.stays, np.float64)
        mean = float(levels @ stays / stays.sum())
        draws.modulated_times(state, out, memory[0], memory[1:], levels * (self.rate / mean), stays)
        memory[0] = out[-1]


@dataclass(frozen=True, eq=False)
class Timestamps(Arrivals):
    """The arrival times of a trace, in order; their rate is that of the trace unless another is given."""

    name = "timestamps"
    times: ArrayLike = ()
    rate: float = math.nan

    def __post_init__(self) -> None:
        times = numbers("arrivals", self.times)
        if times.size < 2:
            raise InputError(f"arrivals has {times.size} timestamps; at least 2 are needed")
        if not np.isfinite(times).all() or (np.diff(times) < 0.0).any():
            raise InputError("arrivals holds timestamps that are not finite or go back in time")
        span = float(times[-1] - times[0])
        if span <= 0.0:
            raise InputError("arrivals holds timestamps that are all equal; a rate needs a span of time")
        own = (times.size - 1) / span
        rate = own if math.isnan(self.rate) else self.rate
        object.__setattr__(self, "rate", rate)
        object.__setattr__(self, "times", (times - times[0]) * (own / rate))

    @property
    def scv(self) -> float:
        return math.nan

    @property
    def count(self) -> int | None:
        return np.asarray(self.times).size

    def at_rate(self, rate: float) -> Arrivals:
        return Timestamps(self.times, rate)

    def fill(self, state: NDArray[np.uint64], out: Array, memory: Array) -> None:
        start = int(memory[0])
        out[:] = np.asarray(self.times)[start : start + out.size]
        memory[0] = start + out.size


ARRIVALS: dict[str, Callable[..., Arrivals]] = {kind.name: kind for kind in (Poisson, Renewal, Modulated)}


def arrivals(given: str | Arrivals | ArrayLike) -> Arrivals:
    """Make an arrival process of text such as ``"renewal(cv=2)"``, or of timestamps.

    Raises
    ------
    InputError
        For an unknown name or parameter, a value out of range, or timestamps that are no trace.
    """
    if isinstance(given, Arrivals):
        return given
    if not isinstance(given, str):
        return Timestamps(given)
    name, found = parse_call(given)
    kind = ARRIVALS.get(name)
    if kind is None:
        raise InputError(f"there is no arrival process {name!r}; {nearest(name, ARRIVALS)}")
    known = [f.name for f in fields(kind) if f.name != "rate"]  # type: ignore[arg-type]
    for key in found:
        if key not in known:
            raise InputError(f"{name} has no parameter {key!r}; {nearest(key, known)}")
    made: Any = kind(**found)
    return made
