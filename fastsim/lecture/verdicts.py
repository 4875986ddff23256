"""One figure of the lecture beside ours, and how it is judged.

A figure of the lecture comes from one short run or a few. It agrees if it lies in our 95 % interval, or in
the range that holds 95 % of single runs of the lecture's own length, each widened by the figure's rounding;
but where single runs range over more than a factor of two, a figure inside tells nothing. Words agree if our
whole interval lies in the range that we take them for. What was run at overload, repeats another row, is a
variant of ours or has a seed that was chosen for its digits is no evidence, and has another word.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsim.stats import Interval, quantile

__all__ = [
    "AGREES",
    "CANNOT_TELL",
    "COUNTED",
    "DISAGREES",
    "NOT_SAID",
    "PICKED",
    "REPEATS",
    "UNDECIDED",
    "VARIANT",
    "Row",
    "apart",
    "claim",
    "exact",
    "figure",
    "formula",
    "measured",
    "middle",
    "without_repeats",
]

Array = NDArray[np.float64]

AGREES, DISAGREES, UNDECIDED = COUNTED = ("agrees", "disagrees", "undecided")
CANNOT_TELL = "cannot tell"  # single runs stray too far, or a cluster is overloaded
VARIANT, REPEATS, PICKED = "variant", "repeats", "picked"  # ours, another row, a seed chosen for its digits
NOT_SAID = "-"
WIDEST = 2.0  # the range of single runs, highest over lowest, within which one run tells something
_FOUND = {AGREES: "it holds", DISAGREES: "it does not hold", UNDECIDED: "undecided"}


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
        One of `COUNTED`; or ``"cannot tell"``; ``"variant"``, ``"repeats"`` or ``"picked"`` of what is no
        evidence of its own; or ``"-"`` where the lecture says nothing.
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
    verdict: str = NOT_SAID,
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
    return Row(id, quantity, unit, lecture, ours, ours, ours, 0, AGREES if same else DISAGREES, note)


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
    verdict = NOT_SAID if lecture is None else AGREES if holds else DISAGREES
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
    low, high = middle(spread[0])
    inside = low - rounding <= lecture <= high + rounding
    near = found.low - rounding <= lecture <= found.high + rounding
    if (inside or near) and high > WIDEST * low:
        note = f"cannot tell from one run: {spread[1]} range over {low:.2f} to {high:.2f}; {note}"
        return measured(id, quantity, unit, lecture, found, CANNOT_TELL, note)
    if near:
        return measured(id, quantity, unit, lecture, found, AGREES, f"in the interval; {note}")
    where = f"{'in' if inside else 'outside'} the spread of {spread[1]}, {low:.2f} to {high:.2f}"
    if not inside:
        where += f", {lecture / found.value - 1.0:+.0%} of ours"
    verdict = AGREES if inside else DISAGREES
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
    """Judge words: the whole interval lies in the range that we take them for, or outside.

    Raises
    ------
    ValueError
        If every positive number is in the range, so that the words could not but agree.
    """
    low, high = wanted
    if low <= 0.0 and high == np.inf:
        raise ValueError(f"{id}, {lecture!r}: a range from {low} to {high} cannot be missed")
    if low <= found.low and found.high <= high:
        verdict = AGREES
    else:
        verdict = DISAGREES if found.low > high or found.high < low else UNDECIDED
    return measured(id, quantity, unit, lecture, found, verdict, note)


def apart(row: Row, verdict: str, why: str = "") -> Row:
    """The same row as no evidence of its own, under another word; its note tells what was found."""
    found = _FOUND.get(row.verdict, "") if verdict != REPEATS else ""
    return replace(row, verdict=verdict, note="; ".join(filter(None, [row.note, why, found])))


def without_repeats(rows: Iterable[Row]) -> list[Row]:
    """The rows, of which those that repeat a quantity and the lecture's word on it are no evidence again."""
    first: dict[tuple[str, object], str] = {}
    made = []
    for row in rows:
        before = first.setdefault((row.quantity, row.lecture), row.id)
        if before != row.id and row.verdict in COUNTED:
            row = apart(row, REPEATS, f"as in {before}")
        made.append(row)
    return made


def middle(values: Array) -> tuple[float, float]:
    """The range that leaves 2.5 % of the values out on either side."""
    return float(quantile(values, 0.025)), float(quantile(values, 0.975))
