"""Figures, fed only by what a sweep stored. A new figure is one function and one entry here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from fastsim.errors import InputError, nearest
from fastsim.report import draw
from fastsim.report.frontier import draw_frontier
from fastsim.sweep import choice
from fastsim.sweep import params as P
from fastsim.sweep.experiments import Experiment, experiment
from fastsim.sweep.inside import check_folder, check_name
from fastsim.sweep.params import Params, check_keys
from fastsim.sweep.spec import Grid, Sweep
from fastsim.sweep.summary import Cell, Results, Table, summarise

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
    lines : str
        The axis that gives the lines of a figure; by default the compared one, else the first that is left.
        Any further axis gives panels.
    where : dict
        Only cells with these values: a parameter's name -> a value, or a list of them.
    average : list of str
        Axes to average over, within a seed. No other is.
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
    lines: str = ""
    where: dict[str, Any] = {}
    average: list[str] = []
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


MOST_PANELS = 12


class Shown(NamedTuple):
    """What of a grid a figure shows: its axis, the axis of its lines, if any, and those of its panels."""

    x: str
    lines: str | None
    panels: tuple[str, ...]

    @property
    def axes(self) -> list[str]:
        """All of them."""
        return [self.x, *([self.lines] if self.lines else []), *self.panels]


def shown(wanted: Wanted, grid: Grid, compare: str) -> Shown:
    """Give every axis on which cells differ a place, unless it is averaged over: lines first, then panels."""
    lines = wanted.lines or (compare if compare in grid.axes and compare not in wanted.average else "")
    axes = [wanted.x, *([lines] if lines and lines != wanted.x else [])]
    while left := [axis for axis in choice.hidden(grid, axes) if axis not in wanted.average]:
        axes.append(left[0])
    _, second, *others = [*axes, None]
    return Shown(wanted.x, second, tuple(axis for axis in others if axis))


def curves(table: Table, what: Experiment, wanted: Wanted) -> Figure:
    """A metric against an axis, one line with its 95 % band a policy; a panel a value of any other axis."""
    metric, axis = what.metrics[wanted.y], wanted.x
    _, lines, *others = [*table.axes, None]
    further = [axis for axis in others if axis]
    panels: dict[str, dict[str, list[draw.At]]] = {}
    for cell in table.cells:
        panel = ", ".join(draw.with_unit(name, cell.axes[name]) for name in further)
        points = panels.setdefault(panel, {}).setdefault(_line_name(table, cell, lines) or metric.label, [])
        points.append(draw.At(cell.axes[axis], cell.metrics[wanted.y], cell.stable))
    for parted in panels.values():
        for points in parted.values():
            points.sort(key=lambda point: point.x)
    return draw.curves(
        panels,
        x_label=axis.rsplit(".", 1)[-1],
        y_label=metric.title(),
        title=wanted.title or table.title,
    )


def _line_name(table: Table, cell: Cell, axis: str | None) -> str:
    """A policy by its name, any other value with its parameter."""
    if axis is None:
        return ""
    return str(cell.axes[axis]) if axis == table.compare else draw.with_unit(axis, cell.axes[axis])


def frontier(table: Table, what: Experiment, wanted: Wanted) -> Figure:
    """Metrics against each other: less of x and of the colour is better, more of y."""
    return draw_frontier(table, what, x=wanted.x, y=wanted.y, colour=wanted.colour, title=wanted.title)


FIGURES: dict[str, Entry] = {
    "curves": Entry(
        "a metric against an axis, one line with its 95 % band a policy; panels for other axes", curves
    ),
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
    if wanted.file:
        check_name(wanted.file, "[[figure]] file")
    if wanted.figure not in FIGURES:
        raise InputError(f"figure {wanted.figure!r} is unknown; {nearest(wanted.figure, FIGURES)}")
    if wanted.grid >= len(sweep.grids):
        raise InputError(
            f"[[figure]] grid is {wanted.grid}; the sweep has {len(sweep.grids)}, counted from 0"
        )
    wanted = msgspec.structs.replace(wanted, where=choice.where_of(sweep, wanted.where, "[[figure]] where"))
    if not choice.only(sweep.grids[wanted.grid], wanted.where).cells:
        raise InputError(f"[[figure]] where: no cell of its grid has {choice.written(wanted.where)}")
    what = experiment(sweep.experiment)
    metrics: Mapping[str, Any] = what.metrics
    of_metrics = FIGURES[wanted.figure].of_metrics
    for name in ("y", "x", "colour") if of_metrics else ("y",):
        value = getattr(wanted, name)
        if value not in metrics:
            raise InputError(f"[[figure]] {name}: there is no metric {value!r}; {nearest(value, metrics)}")
    if of_metrics:
        grid, compare = choice.only(sweep.grids[wanted.grid], wanted.where), what.compare
        _check_number("markers", len(draw.MARKERS), [compare] if compare in grid.axes else [], wanted, grid)
        return msgspec.structs.replace(wanted, file=wanted.file or f"{wanted.y}-{wanted.x}")
    if wanted.colour:
        raise InputError(
            f"[[figure]] colour is {wanted.colour!r}; figure {wanted.figure!r} has no use for it"
        )
    wanted = _resolved(wanted, sweep)
    grid = choice.only(sweep.grids[wanted.grid], wanted.where)
    _check_fits(wanted, grid, shown(wanted, grid, what.compare))
    for cell in grid.cells:
        (value,) = choice.label(cell, [wanted.x])
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InputError(f"[[figure]] x: {wanted.x} has the value {value!r}; it must be a number")
    return msgspec.structs.replace(wanted, file=wanted.file or f"{wanted.y}-{wanted.x.rsplit('.', 1)[-1]}")


def _resolved(wanted: Wanted, sweep: Sweep) -> Wanted:
    """The same with the whole names of axes."""
    axes = sweep.grids[wanted.grid].axes
    return msgspec.structs.replace(
        wanted,
        x=P.resolve(wanted.x, axes, "[[figure]] x"),
        lines=P.resolve(wanted.lines, axes, "[[figure]] lines") if wanted.lines else "",
        average=[P.resolve(name, axes, "[[figure]] average") for name in wanted.average],
    )


def _check_fits(wanted: Wanted, grid: Grid, parted: Shown) -> None:
    """Refuse more panels or lines than can be told apart."""
    _check_number("panels", MOST_PANELS, parted.panels, wanted, grid)
    _check_number("lines", draw.MOST_LINES, [parted.lines] if parted.lines else [], wanted, grid)


def _check_number(what: str, most: int, axes: Sequence[str], wanted: Wanted, grid: Grid) -> None:
    number = len({P.canonical(choice.label(cell, axes)) for cell in grid.cells})
    if number > most:
        names = [axis.rsplit(".", 1)[-1] for axis in axes]
        words = " x ".join(
            f"{name} ({len(choice.values(grid, axis))})" for name, axis in zip(names, axes, strict=True)
        )
        raise InputError(
            f"[[figure]] of {wanted.y} against {wanted.x}: {words} would make {number} {what}, of which "
            f"{most} can be told apart; choose some with where = {{{names[0]} = ...}}"
        )


def write(results: Results, folder: Path) -> list[Path]:
    """Draw every figure the sweep asks for into ``folder/figures`` as PNG; give their paths."""
    what = experiment(results.sweep.experiment)
    paths: list[Path] = []
    check_folder(folder)
    for wanted in check(results.sweep):
        by, metrics = [], [wanted.x, wanted.y, wanted.colour]
        if not FIGURES[wanted.figure].of_metrics:
            grid = choice.only(results.sweep.grids[wanted.grid], wanted.where)
            by, metrics = shown(wanted, grid, what.compare).axes, [wanted.y]
        (table,) = summarise(results, by, metrics, wanted.grid, where=wanted.where, average=wanted.average)
        path = folder / "figures" / f"{wanted.file}.png"
        path.parent.mkdir(exist_ok=True)
        path.unlink(missing_ok=True)  # were it a link, what it leads to would be written
        FIGURES[wanted.figure].draw(table, what, wanted).savefig(path, dpi=160)
        paths.append(path)
    return paths
