"""Drawing with matplotlib, without pyplot's global state."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from fastsim.stats import Interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito, Color Universal Design (2008): told apart with any colour vision; without its yellow.
COLOURS = ("#000000", "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7", "#7F7F7F")
MARKERS = ("o", "s", "D", "^", "v", "P", "*", "X", "<", ">", "p", "h", "d")
DASHES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (1, 1)), (0, (5, 1.5, 1, 1.5)))
# 13 markers and 4 dashes have no common divisor, so no pair of them, which is what grey print leaves of a
# style, comes again before all have been.
MOST_LINES = len(MARKERS) * len(DASHES)
COLUMN_LINES = 26  # of a legend
LOG_SPREAD = 5.0  # values that differ more than this need a logarithmic axis


class At(NamedTuple):
    """A point of a curve: where, the estimate if there is one, and whether the system kept up."""

    x: float
    interval: Interval | None
    stable: bool


Lines = Mapping[str, Sequence[At]]


def curves(panels: Mapping[str, Lines], *, x_label: str, y_label: str, title: str) -> Figure:
    """Lines with 95 % bands; where a point is overloaded, a cross in a strip above instead of a value.

    Parameters
    ----------
    panels : mapping of str to mapping of str to sequence of At
        Small multiples by their titles, with the same axes; of each its lines, sorted by x. A line looks the
        same in all of them.
    x_label, y_label, title : str
    """
    names = list(dict.fromkeys(name for lines in panels.values() for name in lines))
    looks = {name: style(place) for place, name in enumerate(names)}
    every = [points for lines in panels.values() for points in lines.values()]
    over = [name for name in names if any(_is_over(lines.get(name, ())) for lines in panels.values())]
    figure, mains, strips = _frame(len(panels), len(over), len(names))
    for main, strip, (name, lines) in zip(mains, strips, panels.items(), strict=True):
        for line, points in lines.items():
            _line(main, points, label=line, **looks[line])
        if over:
            parted = {line: lines.get(line, ()) for line in over}
            _strip(strip, parted, looks, named=main.get_subplotspec().is_first_col())
        strip.set_title(name, fontsize=9)
        main.grid(alpha=0.25)
        main.set_xlabel(axis_title(x_label))
        main.set_ylabel(y_label)
        main.label_outer()
    _scale(mains, every)
    figure.suptitle(title)
    _legend(figure, mains, names)
    figure.text(0.005, 0.005, f"bands: pointwise 95 % intervals, {_seeds(every)}", fontsize=7, color="0.4")
    return figure


def _frame(panels: int, overloaded: int, lines: int) -> tuple[Figure, list[Any], list[Any]]:
    """A figure, the axes of every panel and, where anything is overloaded, those of the strip above it."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    columns = min(panels, 2 if panels == 4 else 3)
    rows = math.ceil(panels / columns)
    strip, plot = 0.16 * overloaded, 4.0 if rows == 1 else 2.6
    width = (6.0 if columns == 1 else 3.4 * columns) + 2.0 * math.ceil(lines / COLUMN_LINES)
    height = 0.8 + max(rows * (plot + strip), 0.23 * min(lines, COLUMN_LINES))
    layout = ConstrainedLayoutEngine(rect=(0, 0.03, 1, 0.97), h_pad=0.02)  # room for the note below
    figure = Figure(figsize=(width, height), layout=layout)
    heights = [strip, plot] if overloaded else [plot]
    grid = figure.add_gridspec(rows * len(heights), columns, height_ratios=heights * rows)
    mains: list[Any] = []
    strips: list[Any] = []
    for panel in range(panels):
        row, column = divmod(panel, columns)
        first = mains[0] if mains else None
        mains.append(
            figure.add_subplot(grid[(row + 1) * len(heights) - 1, column], sharex=first, sharey=first)
        )
        strips.append(
            figure.add_subplot(grid[row * len(heights), column], sharex=mains[0]) if overloaded else mains[-1]
        )
    return figure, mains, strips


def _scale(mains: Sequence[Any], lines: Sequence[Sequence[At]]) -> None:
    """Ticks at the values of x, and a logarithmic y where values spread."""
    from matplotlib.ticker import LogLocator, NullFormatter

    logarithmic = _spread(lines) > LOG_SPREAD
    for main in mains:
        if logarithmic:
            main.set_yscale("log")
            main.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            main.yaxis.set_major_formatter("{x:g}")
            main.yaxis.set_minor_formatter(NullFormatter())
        main.set_xticks(sorted({point.x for points in lines for point in points}))
        main.xaxis.set_major_formatter("{x:g}")


def _legend(figure: Figure, mains: Sequence[Any], names: Sequence[str]) -> None:
    """One for all panels, beside them."""
    handles: dict[str, Any] = {}
    for main in mains:
        handles |= {line.get_label(): line for line in main.lines}
    figure.legend(
        [handles[name] for name in names],
        names,
        loc="outside right center",
        frameon=False,
        ncols=math.ceil(len(names) / COLUMN_LINES),
        handlelength=3.4,  # shows dashes whole
    )


UNITS = {"rps": "requests/s", "s": "s", "tok": "tokens", "bytes": "bytes"}


def axis_title(name: str) -> str:
    """A parameter's name as words with its unit: ``rate_rps`` becomes ``rate (requests/s)``."""
    words, unit = _parted(name)
    return f"{words} ({unit})" if unit else words


def with_unit(name: str, value: Any) -> str:
    """A parameter with a value of it: ``rate 2 requests/s``."""
    words, unit = _parted(name.rsplit(".", 1)[-1])
    return f"{words} {value} {unit}".rstrip()


def _parted(name: str) -> tuple[str, str]:
    words, _, unit = name.rpartition("_")
    known = words and unit in UNITS
    return (words.replace("_", " "), UNITS[unit]) if known else (name.replace("_", " "), "")


def style(place: int) -> dict[str, Any]:
    """Colour, marker and dashes of the n-th line, never those of another; told apart in grey print too.

    Raises
    ------
    ValueError
        From `MOST_LINES` on.
    """
    if place >= MOST_LINES:
        raise ValueError(f"line {place + 1} would look like another one; {MOST_LINES} can be told apart")
    return {
        "color": COLOURS[place % len(COLOURS)],
        "marker": MARKERS[place % len(MARKERS)],
        "linestyle": DASHES[place % len(DASHES)],
    }


def _line(axes: Any, points: Sequence[At], **look: Any) -> None:
    """One policy; a gap where there is no value."""
    known = [(point.x, point.interval) for point in points if point.interval is not None]
    xs = [x for x, _ in known]
    axes.plot(xs, [interval.value for _, interval in known], markersize=5, linewidth=1.5, **look)
    low, high = [interval.low for _, interval in known], [interval.high for _, interval in known]
    axes.fill_between(xs, low, high, color=look["color"], alpha=0.18, linewidth=0)


def _strip(axes: Any, lines: Lines, looks: Mapping[str, Mapping[str, Any]], *, named: bool) -> None:
    """A row of crosses for each policy that is overloaded somewhere."""
    rows = list(reversed(list(lines.items())))
    for row, (name, points) in enumerate(rows):
        xs = [point.x for point in points if not point.stable]
        axes.plot(xs, [row] * len(xs), color=looks[name]["color"], marker="x", linestyle="none", markersize=5)
    axes.set_ylim(-0.7, len(lines) - 0.3)
    axes.set_yticks(range(len(rows)), [name for name, _ in rows], fontsize=6)
    axes.tick_params(left=False, bottom=False, labelleft=named, labelbottom=False)
    if named:
        axes.set_ylabel("unstable")


def _is_over(points: Sequence[At]) -> bool:
    return any(not point.stable for point in points)


def _spread(lines: Iterable[Sequence[At]]) -> float:
    values = [point.interval.value for points in lines for point in points if point.interval]
    return max(values) / min(values) if values and min(values) > 0 else 1.0


def _seeds(lines: Iterable[Sequence[At]]) -> str:
    counts = {point.interval.n for points in lines for point in points if point.interval}
    return f"{min(counts, default=0)} seeds" if len(counts) < 2 else f"{min(counts)} to {max(counts)} seeds"
