"""From times as written to seconds: the unit, Unix time, and the two mixed up."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fastsim.workloads.readers.columns import Columns, Complaints

PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
GUESS = "guess"  # of a format whose files come in s and in ms under the same names
DATE = "date"

# Unix time from 1998 to 2128: in one unit it cannot be taken for a relative time in another.
_UNIX_FROM_S, _UNIX_TO_S = 9e8, 5e9
MAX_SPAN_S = 1e9  # some 30 years

# A trace that would run faster than this in ms is taken for one in s. The busiest public traces run at some
# hundred requests per second; a short one (below a minute) must look plausible at a tenth of that.
_TOO_FAST_RPS, _SHORT_S = 1000.0, 60.0


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
        Unit of the times, `GUESS` or `DATE`.
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


def read_clock(time: np.ndarray, own_unit: str, stated: str | None) -> Clock:
    """Decide on the unit and whether times count from 1970.

    Parameters
    ----------
    time : ndarray
        Times as written, at least one.
    own_unit : str
        The format's unit, `GUESS` or `DATE`.
    stated : str, optional
        The unit the user states.
    """
    if own_unit == DATE:
        return Clock(DATE, "the format has dates", unix=True)
    lowest = float(time.min())
    if stated is not None:
        return Clock(stated, "stated by the user", _is_unix(lowest, stated))
    if own_unit != GUESS:
        return Clock(own_unit, "the format's own", _is_unix(lowest, own_unit))
    for unit in PER_SECOND:
        if _is_unix(lowest, unit):
            return Clock(unit, "guessed, the values have the size of Unix time", unix=True)
    return _guess(time)


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
    if unit != GUESS:
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


def _guess(time: np.ndarray) -> Clock:
    """Tell ms from s by the rate they imply; ms is what the format's publishers write."""
    span = float(time.max()) - float(time.min())
    if span <= 0 or len(time) < 2:
        return Clock("ms", "assumed, as published; all rows have one time")
    as_s = (len(time) - 1) / span
    as_ms = 1000.0 * as_s
    short = span / 1000.0 < _SHORT_S
    seconds = as_ms > _TOO_FAST_RPS or (short and as_ms > _TOO_FAST_RPS / 10.0)
    rates = f"in ms the trace would run at {as_ms:.4g} requests/s, in s at {as_s:.4g}"
    return Clock("s" if seconds else "ms", f"guessed, {rates}; state the unit if this is wrong")
