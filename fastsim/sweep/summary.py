"""From stored rows to intervals: one estimate a cell and metric, and paired differences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastsim.errors import InputError, nearest
from fastsim.stats import Interval, PairedInterval, paired_difference, skewness_adjusted
from fastsim.sweep import choice, doubts, flat, imports, overload, parts, stopping
from fastsim.sweep import params as P
from fastsim.sweep.experiments import Experiment, experiment
from fastsim.sweep.families import Family, families
from fastsim.sweep.points import blocks
from fastsim.sweep.spec import Grid, Sweep

if TYPE_CHECKING:
    import polars as pl

LEVEL = 0.95


@dataclass(frozen=True)
class Results:
    """What a results folder holds of its sweep.

    Attributes
    ----------
    sweep : Sweep
    rows : polars DataFrame
        One row a point, cell by cell, replicate by replicate; behind the metrics a column for each axis.
    bad : dict of Path to str
        Parts that cannot be used, and why; their points are missing from `rows`.
    notes : tuple of str
        What of the sweep's own imports is no longer there, or not as it was.
    """

    sweep: Sweep
    rows: pl.DataFrame
    bad: dict[Path, str]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cell:
    """One line of a table.

    Attributes
    ----------
    axes : dict
        Value of each axis.
    seeds : int
        Replications behind the estimates.
    missing : int
        Replications that ought to be there and are not: they failed, or are not finished.
    why : str
        Why there are that many: see `stopping.Verdict`.
    stable : bool
        False if the replications together show overload (of pooled cells, any); tail metrics are withheld.
    metrics : dict of str to Interval or None
        Over seeds, adjusted for skewness.
    differences : dict of str to PairedInterval or None
        Against the reference, on the seeds that both have; empty for the reference itself.
    offered_load : float or None
        Offered rate over capacity, the mean over seeds; of pooled cells the highest. None if it is not known.
    families : dict of str to Family
        Which differences stand when all pairs of the setting are judged together, leaving out lines in doubt;
        empty without comparison.
    doubt, difference_doubt : str
        Why the intervals of the line, and of its differences, cannot be trusted: see `doubts`; else empty.
    """

    axes: dict[str, Any]
    seeds: int
    why: str
    stable: bool
    metrics: dict[str, Interval | None]
    differences: dict[str, PairedInterval | None] = field(default_factory=dict)
    offered_load: float | None = None
    families: dict[str, Family] = field(default_factory=dict)
    missing: int = 0
    doubt: str = ""
    difference_doubt: str = ""


@dataclass(frozen=True)
class Table:
    """The summary of one grid.

    Attributes
    ----------
    title : str
    axes, metrics : tuple of str
    compare : str or None
        The axis whose first value, `reference`, the others are compared with.
    cells : tuple of Cell
    estimated : tuple of str
        What is estimated, in sentences.
    """

    title: str
    axes: tuple[str, ...]
    metrics: tuple[str, ...]
    compare: str | None
    reference: Any
    cells: tuple[Cell, ...]
    estimated: tuple[str, ...] = ()


def read(folder: str | Path) -> Results:
    """Read a results folder; also while a sweep is still writing to it.

    Raises
    ------
    InputError
        If the folder holds no sweep, or no finished point yet.
    """
    import polars as pl

    folder = Path(folder)
    sweep = parts.read_manifest(folder)
    notes = imports.recall(sweep.imports)
    survey = parts.survey(folder, sweep)
    values = stopping.observed(sweep, survey.rows)
    used = [
        (P.text(cell), stopping.verdict(sweep, block, values).seeds)
        for block in blocks(sweep)
        for cell in block.cells
    ]
    # Seeds beyond what the stopping rule asks for may be there from an earlier, longer sweep.
    limit = pl.DataFrame(used, schema={"params": pl.String, "_seeds": pl.Int64}, orient="row")
    rows = survey.rows.join(limit, on="params", maintain_order="left")
    rows = rows.filter(pl.col("replicate") < pl.col("_seeds")).drop("_seeds")
    if rows.is_empty():
        broken = f" ({len(survey.bad)} broken parts)" if survey.bad else ""
        raise InputError(f"{folder} has no results yet{broken}: no point of sweep {sweep.name!r} is finished")
    return Results(sweep, flat.beside(rows, sweep), survey.bad, tuple(notes))


def summarise(
    results: Results,
    by: Sequence[str] = (),
    metrics: Sequence[str] = (),
    grid: int | None = None,
    *,
    where: Mapping[str, Any] | None = None,
    average: Sequence[str] = (),
) -> list[Table]:
    """Estimate every metric in every cell, with 95 % intervals over seeds.

    Parameters
    ----------
    results : Results
    by : sequence of str
        Axes to keep, by their whole or last name. Default: all.
    metrics : sequence of str
        Metrics to keep; by default those the sweep prints.
    grid : int, optional
        Only that grid, counted from 0.
    where : mapping, optional
        Only cells with these values: a parameter's whole or last name -> a value, or a list of them.
    average : sequence of str
        Axes that are not kept and may be averaged over, within a seed.

    Raises
    ------
    InputError
        For an axis, metric or value that the sweep does not have, and where lines would be means over an axis
        that `average` does not name.
    """
    sweep = results.sweep
    what = experiment(sweep.experiment)
    for metric in metrics:
        if metric not in what.metrics:
            raise InputError(f"{sweep.name} has no metric {metric!r}; {nearest(metric, what.metrics)}")
    wanted = tuple(metrics) or sweep.metrics
    axes = dict.fromkeys(axis for one in sweep.grids for axis in one.axes)
    names = [P.resolve(name, axes, "axis") for name in by]
    pooled = [P.resolve(name, axes, "axis to average") for name in average]
    chosen = choice.where_of(sweep, where or {})
    grids = [
        choice.only(one, chosen)
        for one in (sweep.grids if grid is None else sweep.grids[grid : grid + 1])
        if set(names) <= set(one.axes)
    ]
    if chosen and grids and not any(one.cells for one in grids):
        raise InputError(f"no cell of {sweep.name!r} passes all of: {choice.written(chosen)}")
    grids = [one for one in grids if one.cells]
    kept = [names or [axis for axis in one.axes if axis not in pooled] for one in grids]
    for one, axes in zip(grids, kept, strict=True):
        choice.check_shown(one, axes, pooled)
    return [_table(results, what, one, axes, wanted) for one, axes in zip(grids, kept, strict=True)]


def _table(
    results: Results, what: Experiment, grid: Grid, by: Sequence[str], metrics: tuple[str, ...]
) -> Table:
    axes = tuple(by)
    groups = _groups(results, what, grid, axes)
    if what.lost and what.lost not in metrics and any(one.loses(what.lost) for one in groups.values()):
        metrics = (*metrics, what.lost)
    compare = what.compare if what.compare in axes else None
    place = axes.index(compare) if compare else 0
    reference = choice.label(grid.cells[0], axes)[place] if compare else None
    judged: dict[str, dict[Label, Family]] = {}
    if compare:
        for name in metrics:
            lines = {at: {} if one.doubt else one.values(name, what) for at, one in groups.items()}
            judged[name] = families(lines, place, LEVEL)
    cells: list[Cell] = []
    for values, group in groups.items():
        base = groups.get((*values[:place], reference, *values[place + 1 :])) if compare else None
        cells.append(
            Cell(
                axes=dict(zip(axes, values, strict=True)),
                seeds=len(group.replicates),
                why=group.why,
                stable=group.stable,
                metrics={name: group.interval(name, what) for name in metrics},
                differences={name: group.difference(name, what, base) for name in metrics}
                if base and base is not group
                else {},
                offered_load=group.offered_load,
                families={name: found[values] for name, found in judged.items()},
                missing=group.wanted - len(group.replicates),
                doubt=group.doubt,
                difference_doubt=group.doubt or base.doubt if base else "",
            )
        )
    return Table(
        grid.title, axes, metrics, compare, reference, tuple(cells), tuple(what.estimates(grid.cells))
    )


class _Group:
    """The rows of one line of a table: one value a replicate and metric."""

    def __init__(
        self,
        rows: pl.DataFrame,
        stable: bool,
        offered_load: float | None,
        why: str,
        wanted: int,
        doubt: str,
    ) -> None:
        self.wanted = wanted
        self.replicates: list[int] = rows["replicate"].to_list()
        self.stable = stable
        self.offered_load = offered_load
        self.why = why
        self.doubt = doubt
        self._rows = rows

    def loses(self, name: str) -> bool:
        """Whether any of the input is lost, by the metric that says so."""
        return any(value is not None and value > 0.0 for value in self._rows[name])

    def values(self, name: str, what: Experiment) -> dict[int, float]:
        """The metric by replicate; empty where it is withheld."""
        if what.metrics[name].tail and not self.stable:
            return {}
        if what.metrics[name].pools:
            return {}
        pairs = zip(self.replicates, self._rows[name], strict=True)
        return {replicate: value for replicate, value in pairs if value is not None}

    def pooled(self, name: str) -> Interval | None:
        """The P99 of all requests together; no interval for it was found that covers."""
        from fastsim.stats.histogram import pooled_quantile  # brings numba

        histograms = [text for of_one in self._rows[name] for text in of_one if text is not None]
        if not histograms or not self.stable:
            return None
        return Interval(pooled_quantile(histograms, 0.99), -math.inf, math.inf, len(self.replicates), LEVEL)

    def interval(self, name: str, what: Experiment) -> Interval | None:
        if what.metrics[name].pools:
            return self.pooled(name)
        values = self.values(name, what)
        return skewness_adjusted(list(values.values()), LEVEL) if values else None

    def difference(self, name: str, what: Experiment, base: _Group) -> PairedInterval | None:
        ours, theirs = self.values(name, what), base.values(name, what)
        both = [replicate for replicate in ours if replicate in theirs]
        if not both:
            return None
        pairs = [ours[r] for r in both], [theirs[r] for r in both]
        return paired_difference(*pairs, LEVEL, skewness_adjusted)


Label = tuple[Any, ...]


def _groups(results: Results, what: Experiment, grid: Grid, axes: Sequence[str]) -> dict[Label, _Group]:
    """The grid's rows by their values on the axes, averaged over everything else within a replicate."""
    import polars as pl

    labels = {P.text(cell): choice.label(cell, axes) for cell in grid.cells}
    places = {label: place for place, label in enumerate(dict.fromkeys(labels.values()))}
    group_of = pl.DataFrame({"params": list(labels), "_group": [places[label] for label in labels.values()]})
    numbers = [name for name, metric in what.metrics.items() if metric.type in (int, float)]
    texts = [name for name, metric in what.metrics.items() if metric.pools]
    # A replicate counts once all its cells are there: some blocks may have more seeds than others.
    whole = pl.when(pl.col(numbers).null_count() == 0).then(pl.col(numbers).mean())  # of all cells, or none
    averaged = (
        results.rows.join(group_of.with_columns(_cells=pl.len().over("_group")), on="params")
        .group_by("_group", "replicate")
        .agg(whole, pl.col(texts), pl.len().alias("_there"), pl.col("_cells").first())
        .filter(pl.col("_there") == pl.col("_cells"))
        .sort("_group", "replicate")
    )
    parted = averaged.partition_by("_group", as_dict=True)
    whys, (overloaded, loads) = _whys(results, labels), _loads(results, labels)
    why_not = {labels[cell]: why for cell, why in doubts.doubts(grid.cells, results.rows).items()}
    return {
        label: _Group(
            parted[(n,)], label not in overloaded, loads.get(label), *whys[label], why_not.get(label, "")
        )
        for label, n in places.items()
        if (n,) in parted
    }


def _loads(results: Results, labels: dict[str, Label]) -> tuple[set[Label], dict[Label, float]]:
    """Lines with a cell whose replications, taken together, show overload; the highest load of each line."""
    said: dict[str, list[overload.Said]] = {}
    for cell, row in zip(results.rows["params"], overload.said_by(results.rows), strict=True):
        if cell in labels:
            said.setdefault(cell, []).append(row)
    loads: dict[Label, float] = {}
    for cell, rows in said.items():
        load = overload.mean_load(rows)
        if load is not None:
            loads[labels[cell]] = max(load, loads.get(labels[cell], load))
    return {labels[cell] for cell, rows in said.items() if not overload.keeps_up(rows)}, loads


def _whys(results: Results, labels: dict[str, Label]) -> dict[Label, tuple[str, int]]:
    """Why each line has its seeds (of pooled cells, the least favourable), and how many it ought to have."""
    order = ["fixed", "target", "cap", "running"]
    values = stopping.observed(results.sweep, results.rows)
    worst: dict[Label, tuple[str, int]] = {}
    for block in blocks(results.sweep):
        verdict = stopping.verdict(results.sweep, block, values)
        for label in (labels[P.text(cell)] for cell in block.cells if P.text(cell) in labels):
            why, seeds = worst.get(label, (verdict.why, verdict.seeds))
            worst[label] = (max(why, verdict.why, key=order.index), min(seeds, verdict.seeds))
    return worst
