"""Figures, fed only by what a sweep stored. A new figure is one function and one entry here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from fastsim.errors import InputError, nearest
from fastsim.report import draw
from fastsim.report.frontier import draw_frontier
from fastsim.sweep import params as P
from fastsim.sweep.experiments import Experiment, experiment
from fastsim.sweep.params import Params, check_keys
from fastsim.sweep.spec import Sweep
from fastsim.sweep.summary import Results, Table, summarise

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Wanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A ``[[figure]]`` of a sweep.

    Attributes
    ----------
    figure : str
        A name of the registry.
    x : str
        The axis to draw against; of a frontier, a metric.
    y : str
        The metric to draw.
    colour : str
        Of a frontier, a third metric.
    grid : int
        Which grid, counted from 0.
    title : str
        Above the figure; by default the grid's.
    file : str
        Name without its ending; by default ``y-x``.
    """

    figure: str
    x: str
    y: str
    colour: str = ""
    grid: Annotated[int, Meta(ge=0)] = 0
    title: str = ""
    file: str = ""


@dataclass(frozen=True)
class Entry:
    """A figure of the registry.

    Attributes
    ----------
    doc : str
    draw : callable
        (table, what, wanted) -> matplotlib Figure.
    of_metrics : bool
        It draws metrics against each other, every cell a point, rather than one against an axis.
    """

    doc: str
    draw: Callable[[Table, Experiment, Wanted], Figure]
    of_metrics: bool = False


def curves(table: Table, what: Experiment, wanted: Wanted) -> Figure:
    """A metric against an axis, one line with its 95 % band a policy."""
    metric, axis = what.metrics[wanted.y], wanted.x
    lines: dict[Any, list[draw.At]] = {}
    for cell in table.cells:
        name = cell.axes[table.compare] if table.compare else metric.label
        interval = cell.metrics[wanted.y]
        lines.setdefault(name, []).append(draw.At(cell.axes[axis], interval, cell.stable))
    return draw.curves(
        {str(name): sorted(points, key=lambda point: point.x) for name, points in lines.items()},
        x_label=axis.rsplit(".", 1)[-1],
        y_label=metric.title(),
        title=wanted.title or table.title,
    )


def frontier(table: Table, what: Experiment, wanted: Wanted) -> Figure:
    """Metrics against each other: less of x and of the colour is better, more of y."""
    return draw_frontier(table, what, x=wanted.x, y=wanted.y, colour=wanted.colour, title=wanted.title)


FIGURES: dict[str, Entry] = {
    "curves": Entry("a metric against an axis, one line with its 95 % band a policy", curves),
    "frontier": Entry(
        "metrics against each other, what no cell beats in all of them labelled", frontier, True
    ),
}


def check(sweep: Sweep) -> list[Wanted]:
    """The figures a sweep asks for, checked before anything runs.

    Raises
    ------
    InputError
        For an unknown figure, axis or metric, with the nearest good one.
    """
    return [_checked(given, sweep) for given in sweep.figures]


def _checked(given: Params, sweep: Sweep) -> Wanted:
    check_keys(given, Wanted.__struct_fields__, "[[figure]]")
    try:
        wanted = msgspec.convert(given, Wanted)
    except msgspec.ValidationError as error:
        raise InputError(f"[[figure]]: {error}") from None
    if wanted.figure not in FIGURES:
        raise InputError(f"figure {wanted.figure!r} is unknown; {nearest(wanted.figure, FIGURES)}")
    if wanted.grid >= len(sweep.grids):
        raise InputError(
            f"[[figure]] grid is {wanted.grid}; the sweep has {len(sweep.grids)}, counted from 0"
        )
    metrics: Mapping[str, Any] = experiment(sweep.experiment).metrics
    of_metrics = FIGURES[wanted.figure].of_metrics
    for name in ("y", "x", "colour") if of_metrics else ("y",):
        value = getattr(wanted, name)
        if value not in metrics:
            raise InputError(f"[[figure]] {name}: there is no metric {value!r}; {nearest(value, metrics)}")
    if of_metrics:
        return msgspec.structs.replace(wanted, file=wanted.file or f"{wanted.y}-{wanted.x}")
    if wanted.colour:
        raise InputError(
            f"[[figure]] colour is {wanted.colour!r}; figure {wanted.figure!r} has no use for it"
        )
    grid = sweep.grids[wanted.grid]
    x = P.resolve(wanted.x, grid.axes, "[[figure]] x")
    for cell in grid.cells:
        value = P.flatten(cell).get(x)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InputError(f"[[figure]] x: {x} has the value {value!r}; it must be a number")
    return msgspec.structs.replace(wanted, x=x, file=wanted.file or f"{wanted.y}-{x.rsplit('.', 1)[-1]}")


def write(results: Results, folder: Path) -> list[Path]:
    """Draw every figure the sweep asks for into ``folder/figures`` as PNG; give their paths."""
    what = experiment(results.sweep.experiment)
    paths: list[Path] = []
    for wanted in check(results.sweep):
        if FIGURES[wanted.figure].of_metrics:
            (table,) = summarise(results, metrics=[wanted.x, wanted.y, wanted.colour], grid=wanted.grid)
        else:
            axes = results.sweep.grids[wanted.grid].axes
            by = [wanted.x, *([what.compare] if what.compare in axes else [])]
            (table,) = summarise(results, by=by, metrics=[wanted.y], grid=wanted.grid)
        path = folder / "figures" / f"{wanted.file}.png"
        path.parent.mkdir(exist_ok=True)
        FIGURES[wanted.figure].draw(table, what, wanted).savefig(path, dpi=160)
        paths.append(path)
    return paths
