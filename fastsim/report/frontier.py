"""Cells of a grid by three metrics: which of them no other beats in all."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any, NamedTuple

from fastsim.report.draw import MARKERS
from fastsim.stats import Interval
from fastsim.sweep.experiments import Experiment
from fastsim.sweep.summary import Cell, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LETTERS = [*ascii_uppercase, *(f"{a}{b}" for a in ascii_uppercase for b in ascii_uppercase)]


class Point(NamedTuple):
    """A stable cell: what it is, and its three estimates."""

    cell: Cell
    x: Interval
    y: Interval
    z: Interval


def points(table: Table, x: str, y: str, z: str) -> list[Point]:
    """The cells that have all three metrics: overloaded ones lack their P99."""
    found: list[Point] = []
    for cell in table.cells:
        at = [cell.metrics[name] for name in (x, y, z)]
        if cell.stable and at[0] and at[1] and at[2]:
            found.append(Point(cell, at[0], at[1], at[2]))
    return found


def undominated(given: Sequence[Point]) -> list[Point]:
    """Points whose estimates no other equals or beats in all three: less x, more y, less z; by y, then x.

    Of points that are the same in all three, the first stays.
    """
    kept: list[Point] = []
    for place, point in enumerate(given):
        worse = False
        for other_place, other in enumerate(given):
            ahead = (
                point.x.value - other.x.value,
                other.y.value - point.y.value,
                point.z.value - other.z.value,
            )
            worse |= min(ahead) >= 0.0 and (max(ahead) > 0.0 or other_place < place)
        if not worse:
            kept.append(point)
    return sorted(kept, key=lambda point: (point.y.value, point.x.value))


def draw_frontier(table: Table, what: Experiment, *, x: str, y: str, colour: str, title: str) -> Figure:
    """All stable cells; the undominated ones with intervals and a letter, explained beside.

    Parameters
    ----------
    table : Table
    what : Experiment
    x, y, colour : str
        Metrics: of x and the colour less is better, of y more.
    title : str
        By default the table's.
    """
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    shown = points(table, x, y, colour)
    front = undominated(shown)
    figure = Figure(figsize=(11.0, 6.2), layout=ConstrainedLayoutEngine(rect=(0, 0.03, 1, 0.97)))
    axes, key = figure.subplots(1, 2, width_ratios=[2.6, 1.0])
    if shown:
        _scatter(figure, axes, table, what, shown, front, colour)
    axes.set_xlabel(what.metrics[x].title())
    axes.set_ylabel(what.metrics[y].title())
    axes.grid(alpha=0.25)
    figure.suptitle(title or table.title)
    key.axis("off")
    key.text(0.0, 1.0, _key(table, what, front, (x, y, colour)), va="top", family="monospace", fontsize=7)
    left_out = len(table.cells) - len(shown)
    note = "letters: no other cell's estimates are as good in all three; bars: 95 % intervals over seeds"
    if left_out:
        note += f"; {left_out} of {len(table.cells)} cells are overloaded and not shown"
    figure.text(0.005, 0.005, note, fontsize=7, color="0.4")
    return figure


def _scatter(
    figure: Figure,
    axes: Any,
    table: Table,
    what: Experiment,
    shown: Sequence[Point],
    front: Sequence[Point],
    colour: str,
) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    values = [point.z.value for point in shown]
    mapped: Any = ScalarMappable(Normalize(min(values), max(values)), "viridis")
    names = list(dict.fromkeys(_policy(table, cell) for cell in table.cells))
    for place, name in enumerate(names):
        axes.plot([], [], MARKERS[place], color="0.3", label=name or None)
    for point in shown:
        first = point in front
        axes.errorbar(
            point.x.value,
            point.y.value,
            xerr=_bar(point.x) if first else None,
            yerr=_bar(point.y) if first else None,
            marker=MARKERS[names.index(_policy(table, point.cell))],
            color=mapped.to_rgba(point.z.value),
            markeredgecolor="black" if first else "none",
            markersize=7 if first else 4,
            alpha=1.0 if first else 0.45,
            elinewidth=0.8,
            linestyle="none",
            zorder=3 if first else 2,
        )
    for row, (letter, point) in enumerate(zip(LETTERS, front, strict=False)):
        at, shift = (point.x.value, point.y.value), (5, 5 + 8 * (row % 3))  # neighbours stay legible
        axes.annotate(letter, at, shift, textcoords="offset points", fontsize=8, weight="bold", zorder=4)
    figure.colorbar(mapped, ax=axes, label=what.metrics[colour].title(), pad=0.01)
    if names != [""]:
        axes.legend(frameon=False, loc="lower right", title=_last(table.compare or ""))


def _policy(table: Table, cell: Cell) -> str:
    return str(cell.axes[table.compare]) if table.compare else ""


def _bar(interval: Interval) -> list[list[float]]:
    return [[interval.value - interval.low], [interval.high - interval.value]]


def _last(name: str) -> str:
    return name.rsplit(".", 1)[-1]


def _key(table: Table, what: Experiment, front: Sequence[Point], metrics: Sequence[str]) -> str:
    """What each letter is: its axes, and the three estimates."""
    from fastsim.report.text import grid

    header = ["", *map(_last, table.axes), *(_short(what.metrics[name].label) for name in metrics)]
    rows = [
        [letter, *(str(point.cell.axes[axis]) for axis in table.axes), *_three(point)]
        for letter, point in zip(LETTERS, front, strict=False)
    ]
    return grid(header, rows, left=1)


def _three(point: Point) -> list[str]:
    return [f"{interval.value:.3g}" for interval in (point.x, point.y, point.z)]


def _short(label: str) -> str:
    return label.split()[0] if len(label) > 10 else label
