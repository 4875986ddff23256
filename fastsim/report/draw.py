"""Drawing with matplotlib, without pyplot's global state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from fastsim.stats import Interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito, Color Universal Design (2008): told apart with any colour vision; without its yellow.
COLOURS = ("#000000", "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7", "#7F7F7F")
MARKERS = "osD^vP*X"
LOG_SPREAD = 5.0  # values that differ more than this need a logarithmic axis


class At(NamedTuple):
    """A point of a curve: where, the estimate if there is one, and whether the system kept up."""

    x: float
    interval: Interval | None
    stable: bool


def curves(lines: Mapping[str, Sequence[At]], *, x_label: str, y_label: str, title: str) -> Figure:
    """Lines with 95 % bands; where a point is overloaded, a cross in a strip above instead of a value.

    Parameters
    ----------
    lines : mapping of str to sequence of At
        In the order of the legend, each sorted by x.
    x_label, y_label, title : str
    """
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine
    from matplotlib.ticker import LogLocator, NullFormatter

    overloaded = [name for name, points in lines.items() if any(not point.stable for point in points)]
    layout = ConstrainedLayoutEngine(rect=(0, 0.03, 1, 0.97))  # room for the note below
    figure = Figure(figsize=(8.0, 4.8 + 0.16 * len(overloaded)), layout=layout)
    heights = [0.16 * len(overloaded), 4.0] if overloaded else [4.0]
    axes = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights, squeeze=False)[:, 0]
    main = axes[-1]
    for place, (name, points) in enumerate(lines.items()):
        _line(main, points, label=name, **style(place))
    if overloaded:
        _strip(axes[0], {name: lines[name] for name in overloaded}, list(lines))
    if _spread(lines) > LOG_SPREAD:
        main.set_yscale("log")
        main.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        main.yaxis.set_major_formatter("{x:g}")
        main.yaxis.set_minor_formatter(NullFormatter())
    main.set_xlabel(axis_title(x_label))
    main.set_ylabel(y_label)
    main.grid(alpha=0.25)
    main.set_xticks(sorted({point.x for points in lines.values() for point in points}))
    main.xaxis.set_major_formatter("{x:g}")
    figure.suptitle(title)
    figure.legend(*main.get_legend_handles_labels(), loc="outside right center", frameon=False)
    figure.text(0.005, 0.005, f"bands: pointwise 95 % intervals, {_seeds(lines)}", fontsize=7, color="0.4")
    return figure


UNITS = {"rps": "requests/s", "s": "s", "tok": "tokens", "bytes": "bytes"}


def axis_title(name: str) -> str:
    """A parameter's name as words with its unit: ``rate_rps`` becomes ``rate (requests/s)``."""
    words, _, unit = name.rpartition("_")
    if words and unit in UNITS:
        return f"{words.replace('_', ' ')} ({UNITS[unit]})"
    return name.replace("_", " ")


def style(place: int) -> dict[str, Any]:
    """Colour, marker and dashes of the n-th line: told apart in print too, and where lines coincide."""
    dashes = ("-", "--")[place % 2]
    return {
        "color": COLOURS[place % len(COLOURS)],
        "marker": MARKERS[place % len(MARKERS)],
        "linestyle": dashes,
    }


def _line(axes: Any, points: Sequence[At], **look: Any) -> None:
    """One policy; a gap where there is no value."""
    known = [(point.x, point.interval) for point in points if point.interval is not None]
    xs = [x for x, _ in known]
    axes.plot(xs, [interval.value for _, interval in known], markersize=5, linewidth=1.5, **look)
    low, high = [interval.low for _, interval in known], [interval.high for _, interval in known]
    axes.fill_between(xs, low, high, color=look["color"], alpha=0.18, linewidth=0)


def _strip(axes: Any, lines: Mapping[str, Sequence[At]], order: Sequence[str]) -> None:
    """A row of crosses for each policy that is overloaded somewhere."""
    for row, name in enumerate(reversed(list(lines))):
        xs = [point.x for point in lines[name] if not point.stable]
        look = style(order.index(name))
        axes.plot(xs, [row] * len(xs), color=look["color"], marker="x", linestyle="none", markersize=5)
    axes.set_ylim(-0.7, len(lines) - 0.3)
    axes.set_yticks([])
    axes.set_ylabel("unstable", rotation=0, ha="right", va="center")
    axes.tick_params(bottom=False)


def _spread(lines: Mapping[str, Sequence[At]]) -> float:
    values = [point.interval.value for points in lines.values() for point in points if point.interval]
    return max(values) / min(values) if values and min(values) > 0 else 1.0


def _seeds(lines: Mapping[str, Sequence[At]]) -> str:
    counts = {point.interval.n for points in lines.values() for point in points if point.interval}
    return f"{min(counts, default=0)} seeds" if len(counts) < 2 else f"{min(counts)} to {max(counts)} seeds"
