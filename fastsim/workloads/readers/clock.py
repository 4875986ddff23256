"""From times as written to seconds: the unit, Unix time, and the two mixed up."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fastsim.errors import InputError
from fastsim.workloads.readers.columns import Columns, Complaints
from fastsim.workloads.workload import MAX_SPAN_S as MAX_SPAN_S

PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
WHOLE_MS = "whole ms"  # published in whole ms; files in s come under the same names, with fractions
DATE = "date"

# Unix time from 1998 to 2128: in one unit it cannot be taken for a relative time in another.
_UNIX_FROM_S, _UNIX_TO_S = 9e8, 5e9


@dataclass(frozen=True)
class Clock:
    """How times are to be read."""

    unit: str
    why: str
    unix: bool = False

    @property
    def reason(self) -> str:
        """Why this unit, and where second 0 lies."""
        return f"{self.why}; counted from the first arrival, which is second 0" if self.unix else self.why


def drop_mixed_times(columns: Columns, unit: str, complaints: Complaints) -> Columns:
    """Complain about Unix times among relative ones, or the reverse, whichever are fewer.

    Parameters
    ----------
    columns : Columns
        At least one row.
    unit : str
        Unit of the times, `WHOLE_MS` or `DATE`.
    complaints : Complaints

    Returns
    -------
    Columns
        Without the rows complained about.
    """
    unix = _looks_unix(columns.time, unit)
    if unix.all() or not unix.any():
        return columns
    odd, kind = unix, "must be a relative time like those of other rows; this looks like Unix time"
    if unix.mean() > 0.5 or (unix.mean() == 0.5 and unix[0]):
        odd, kind = ~unix, "must be a Unix time like those of other rows; this looks relative"
    complaints.rows(odd, columns.line, columns.time_column, columns.time, kind)
    return columns.keep(~odd)


def read_clock(file: str, time: np.ndarray, own_unit: str, stated: str | None) -> Clock:
    """Decide on the unit and whether times count from 1970.

    Parameters
    ----------
    file : str
        For messages.
    time : ndarray
        Times as written, at least one.
    own_unit : str
        The format's unit, `WHOLE_MS` or `DATE`.
    stated : str, optional
        The unit the user states.

    Raises
    ------
    InputError
        For times with fractions where the format is published in whole ms: they may be in s, which is a
        thousand times the load.
    """
    if own_unit == DATE:
        return Clock(DATE, "the format has dates", unix=True)
    lowest = float(time.min())
    if stated is not None:
        return Clock(stated, "stated by the user", _is_unix(lowest, stated))
    if own_unit != WHOLE_MS:
        return Clock(own_unit, "the format's own", _is_unix(lowest, own_unit))
    for unit in PER_SECOND:
        if _is_unix(lowest, unit):
            return Clock(unit, "told by the values, which have the size of Unix time", unix=True)
    if (time == np.rint(time)).all():
        return Clock("ms", f"as published{_rates(time, ', with which the trace runs at {}')}")
    odd = time[np.argmax(time != np.rint(time))]
    raise InputError(
        f"{file}: the unit of the times is not clear: the format comes in whole ms, and {odd:.15g} has a "
        f"fraction{_rates(time, '; in ms the trace would run at {}, in s at {}')}; "
        "state time_unit, 's' or 'ms'"
    )


def _rates(time: np.ndarray, words: str) -> str:
    """The rates that the times make in ms and in s, if they make any."""
    span = float(time.max()) - float(time.min())
    if span <= 0:
        return ""
    rates = ((len(time) - 1) * per_second / span for per_second in (1000.0, 1.0))
    return words.format(*(f"{rate:.4g} requests/s" for rate in rates))


def to_seconds(time: np.ndarray, clock: Clock) -> np.ndarray:
    """Return arrival times in seconds; dates and Unix times count from the first arrival.

    Whole numbers are subtracted as such: nanoseconds since 1970 do not fit a float64.
    """
    if clock.unix:
        time = time - time.min()
    return time / (PER_SECOND["ns"] if clock.unit == DATE else PER_SECOND[clock.unit])


def _is_unix(value: float, unit: str) -> bool:
    return _UNIX_FROM_S <= value / PER_SECOND[unit] < _UNIX_TO_S


def _looks_unix(time: np.ndarray, unit: str) -> np.ndarray:
    """Return a mask of the times that look like Unix time beside others that do not."""
    if unit == DATE:
        return np.ones(len(time), dtype=bool)
    if unit != WHOLE_MS:
        return time >= _UNIX_FROM_S * PER_SECOND[unit]
    highest = float(time.max())
    if not any(_is_unix(highest, guess) for guess in PER_SECOND):
        return np.zeros(len(time), dtype=bool)
    # A month in ms is as large a number as Unix time in s, but it does not come in two lumps.
    ordered = np.sort(time.astype(np.float64))
    gap = np.diff(ordered)
    if len(gap) == 0 or gap.max() <= highest / 2.0:
        return np.ones(len(time), dtype=bool)
    return time > ordered[int(gap.argmax())]
