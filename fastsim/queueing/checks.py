"""Checks that the formulas share."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsim.errors import InputError
from fastsim.typed import reals


def check_rate(name: str, value: float) -> None:
    """Raise InputError unless `value` is a finite number above zero."""
    if not (math.isfinite(value) and value > 0.0):
        raise InputError(f"{name} is {value:g}; it must be a finite number above 0")


def check_stable(utilisation: float) -> None:
    """Raise InputError unless the utilisation is below one."""
    if utilisation >= 1.0:
        raise InputError(f"the utilisation is {utilisation:g}; a steady state needs one in (0, 1)")


def check_probability(p: float) -> None:
    """Raise InputError unless p lies in [0, 1)."""
    if not 0.0 <= p < 1.0:
        raise InputError(f"p is {p:g}; a quantile needs one in [0, 1)")


def check_variance(name: str, value: float) -> None:
    """Raise InputError for an infinite or negative second moment."""
    if not math.isfinite(value) or value < 0.0:
        raise InputError(f"{name} is {value:g}; this formula needs sizes of finite variance")


def number(name: str, value: Any) -> float:
    """`value` as a float; InputError unless it is a number."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real):
        raise InputError(f"{name} is {value!r}; it must be a number")
    return float(value)


def whole(name: str, value: Any, low: int | None = None, high: int | None = None) -> int:
    """`value` as an int; InputError unless it is a whole number from `low` to `high`."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, Integral):
        raise InputError(f"{name} is {value!r}; it must be a whole number")
    found = int(value)
    if low is not None and found < low:
        raise InputError(f"{name} is {found}; it must be at least {low}")
    if high is not None and found > high:
        raise InputError(f"{name} is {found}; it must be at most {high}")
    return found


def numbers(name: str, values: Any) -> NDArray[np.float64]:
    """`values` as a flat float64 array; InputError unless they are numbers in one row."""
    found = reals(name, values, finite=False)
    if found.ndim != 1:
        raise InputError(f"{name} is not a row of numbers")
    return np.ascontiguousarray(found)
