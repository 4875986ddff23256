"""Checks that the formulas share."""

from __future__ import annotations

import math

from fastsim.errors import InputError


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
