"""One figure of the lecture beside ours, and how it is judged.

A figure of the lecture comes from one short run or a few. It agrees if it lies in our 95 % interval, or in
the range that holds 95 % of single runs of the lecture's own length, each widened by the figure's rounding.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsim.stats import Interval, quantile

__all__ = ["Row", "claim", "exact", "figure", "formula", "measured", "middle"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Row:
    """One figure.

    Attributes
    ----------
    id, quantity, unit : str
    lecture : float, str or None
        The lecture's figure, its words where it gives none, None where it says nothing.
    ours, low, high : float
        Estimate and 95 % interval.
    seeds : int
        Independent runs behind it; 0 for a formula.
    verdict : str
        ``"agrees"``, ``"disagrees"``, ``"undecided"``, or ``"-"`` where the lecture says nothing.
    note : str
        How long the runs were, and why the verdict is what it is.
    """

    id: str
    quantity: str
    unit: str
    lecture: float | str | None
    ours: float
    low: float
    high: float
    seeds: int
    verdict: str
    note: str

    def to_dict(self) -> dict[str, Any]:
        """The attributes by name."""
        return asdict(self)


def measured(
    id: str,
    quantity: str,
    unit: str,
    lecture: float | str | None,
    found: Interval,
    verdict: str = "-",
    note: str = "",
) -> Row:
    """A row of an interval, the verdict as given; by default the lecture says nothing of it."""
    return Row(id, quantity, unit, lecture, found.value, found.low, found.high, found.n, verdict, note)


def exact(
    id: str,
    quantity: str,
    unit: str,
    lecture: float,
    ours: float,
    decimals: int,
    note: str = "a formula",
) -> Row:
    """Judge a number that takes no simulation: it agrees if it rounds to the lecture's ``decimals``."""
    same = abs(round(ours, decimals) - lecture) < 1e-9
    note = note if same else f"{note}; it gives {ours:.6g}"
    return Row(id, quantity, unit, lecture, ours, ours, ours, 0, "agrees" if same else "disagrees", note)


def formula(
    id: str,
    quantity: str,
    unit: str,
    lecture: str | None,
    ours: float,
    holds: bool = False,
    note: str = "",
) -> Row:
    """Beside the lecture's words a number that takes no sample; without words there is no verdict."""
    verdict = "-" if lecture is None else "agrees" if holds else "disagrees"
    return Row(id, quantity, unit, lecture, ours, ours, ours, 0, verdict, note)


def figure(
    id: str,
    quantity: str,
    unit: str,
    lecture: float | None,
    decimals: int,
    found: Interval,
    spread: tuple[Array, str],
    note: str,
) -> Row:
    """Judge a number against the interval, then against the spread of runs as short as the lecture's.

    Parameters
    ----------
    id, quantity, unit : str
    lecture : float or None
        The lecture's number; None is not judged.
    decimals : int
        Decimals that the lecture gives; its rounding widens both ranges.
    found : Interval
    spread : (float64[k], str)
        Results of k single runs of the lecture's length, and what they are.
    note : str
    """
    if lecture is None:
        return measured(id, quantity, unit, None, found, note=note)
    rounding = 0.5 * 10.0**-decimals
    if found.low - rounding <= lecture <= found.high + rounding:
        return measured(id, quantity, unit, lecture, found, "agrees", f"in the interval; {note}")
    low, high = middle(spread[0])
    inside = low - rounding <= lecture <= high + rounding
    where = f"{'in' if inside else 'outside'} the spread of {spread[1]}, {low:.2f} to {high:.2f}"
    if not inside:
        where += f", {lecture / found.value - 1.0:+.0%} of ours"
    verdict = "agrees" if inside else "disagrees"
    return measured(id, quantity, unit, lecture, found, verdict, f"{where}; {note}")


def claim(
    id: str,
    quantity: str,
    lecture: str,
    found: Interval,
    wanted: tuple[float, float],
    note: str,
    unit: str = "",
) -> Row:
    """Judge words: the whole interval lies in the range that we take them for, or outside."""
    low, high = wanted
    if low <= found.low and found.high <= high:
        verdict = "agrees"
    else:
        verdict = "disagrees" if found.low > high or found.high < low else "undecided"
    return measured(id, quantity, unit, lecture, found, verdict, note)


def middle(values: Array) -> tuple[float, float]:
    """The range that leaves 2.5 % of the values out on either side."""
    return float(quantile(values, 0.025)), float(quantile(values, 0.975))
