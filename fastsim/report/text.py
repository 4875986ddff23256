"""Tables for a terminal: plain text, numbers right-aligned, every value with its half-width."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from fastsim.stats import Interval, load_state, point_is_stable
from fastsim.sweep import doubts
from fastsim.sweep.experiments import Experiment, Metric, experiment
from fastsim.sweep.replay import Replay
from fastsim.sweep.spec import Sweep
from fastsim.sweep.summary import Cell, Table


def grid(
    header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 0, gaps: Sequence[int] = ()
) -> str:
    """Lay out a table in columns two spaces apart.

    Parameters
    ----------
    header : sequence of str
        A unit in brackets at the end of a title goes to a line of its own.
    rows : sequence of sequence of str
    left : int
        Number of leading columns aligned to the left; the others go right.
    gaps : sequence of int
        Rows that get an empty line before them.
    """
    titles = [title.partition(" (") for title in header]
    units = [f"({unit}" if unit else "" for _, _, unit in titles]
    heads = [[name for name, _, _ in titles], *([units] if any(units) else [])]
    widths = [max(len(row[column]) for row in (*heads, *rows)) for column in range(len(header))]

    def line(row: Sequence[str]) -> str:
        cells = [
            text.ljust(width) if column < left else text.rjust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        return "  ".join(cells).rstrip()

    lines = [*map(line, heads), "  ".join("-" * width for width in widths)]
    for number, row in enumerate(rows):
        lines += ["", line(row)] if number in gaps else [line(row)]
    return "\n".join(lines)


def with_half_width(interval: Interval | None, *, signed: bool = False) -> str:
    """``3.88 ± 0.12``: the half-width to two digits, the value to the same decimals."""
    if interval is None:
        return "-"
    half, sign = interval.half_width, "+" if signed else ""
    if half == 0.0:
        return f"{interval.value:{sign}.4g} ± 0"
    if not math.isfinite(half):  # one seed says nothing about the spread
        return f"{interval.value:{sign}.4g} ± ?"
    decimals = min(max(1 - math.floor(math.log10(half)), 0), 9)
    return f"{interval.value:{sign}.{decimals}f} ± {half:.{decimals}f}"


def with_sides(interval: Interval | None, *, signed: bool = False) -> str:
    """As `with_half_width`, but ``3.88 +0.15-0.12`` where the sides of the interval differ as printed."""
    if interval is None or interval.half_width == 0.0 or not math.isfinite(interval.half_width):
        return with_half_width(interval, signed=signed)
    up, down = interval.high - interval.value, interval.value - interval.low
    decimals = min(max(1 - math.floor(math.log10(interval.half_width)), 0), 9)
    above, below = f"{up:.{decimals}f}", f"{down:.{decimals}f}"
    if above == below:
        return with_half_width(interval, signed=signed)
    return f"{interval.value:{'+' if signed else ''}.{decimals}f} +{above}-{below}"


def number(value: Any, digits: int = 4) -> str:
    """A plain value: four digits of a float, or so many, thousands of an integer set apart."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.{digits}g}"
    return "-" if value is None else str(value)


def summary(table: Table, what: Experiment) -> str:
    """The table of one grid, with its title above and what the reader must know below."""
    if not table.cells:
        return "\n".join([*([table.title, ""] if table.title else []), "no line has all its points yet"])
    contrast = [name for name in what.contrast if name in table.metrics] if _compared(table) else []
    seeds = {(cell.seeds, cell.why) for cell in table.cells}
    columns: list[tuple[str, list[str]]] = [
        (name, [str(cell.axes[axis]) for cell in table.cells])
        for name, axis in zip(_short_names(table.axes), table.axes, strict=True)
    ]
    short = any(cell.missing for cell in table.cells)
    if short or len(seeds) > 1 or {why for _, why in seeds} != {"fixed"}:
        columns.append(("seeds", [_seeds(cell) for cell in table.cells]))
    if any(cell.offered_load is not None for cell in table.cells):
        columns.append(("offered load", [load(cell.offered_load) for cell in table.cells]))
    for name in table.metrics:
        metric = what.metrics[name]
        columns.append((metric.title(), [_value(cell, cell.metrics[name], metric) for cell in table.cells]))
    for name in contrast:
        metric = what.metrics[name]
        texts = [_difference(table, cell, name, metric) for cell in table.cells]
        columns.append((f"Δ {metric.title()}", texts))
    if not any(what.metrics[name].tail for name in table.metrics) and not all(c.stable for c in table.cells):
        columns.append(("state", ["stable" if cell.stable else "unstable" for cell in table.cells]))
    rows = list(zip(*(texts for _, texts in columns), strict=True))
    text = grid([title for title, _ in columns], rows, left=len(table.axes), gaps=_gaps(table))
    return "\n".join(
        [
            *([table.title, ""] if table.title else []),
            text,
            "",
            *_notes(table, contrast),
            *legend(what, table.metrics),
        ]
    )


def _seeds(cell: Cell) -> str:
    """How many seeds there are, of how many if some are missing, and why so many."""
    of = f" of {cell.seeds + cell.missing}" if cell.missing else ""
    return f"{cell.seeds}{of}{MARKS[cell.why]}"


# After the number of seeds: why there are that many.
MARKS = {"fixed": "", "target": "", "cap": "*", "running": "..."}


def load(value: float | None) -> str:
    """Offered load over capacity, marked where it is too close to 1 to tell on which side it is."""
    if value is None:
        return "-"
    return f"{value:.2f}{'~' if load_state(value) == 'near capacity' else ''}"


LOAD_NOTE = (
    "offered load: the rate over the highest that this cluster and router can finish, measured with all work "
    "waiting"
)
NEAR_NOTE = "~: within 3 % of capacity, where no run tells whether the backlog grows"


def _load_notes(loads: Sequence[float | None]) -> list[str]:
    known = [value for value in loads if value is not None]
    near = any(load_state(value) == "near capacity" for value in known)
    return [*([LOAD_NOTE] if known else []), *([NEAR_NOTE] if near else [])]


def _value(cell: Cell, interval: Interval | None, metric: Metric) -> str:
    if metric.tail and not cell.stable:
        return "unstable"
    return with_sides(interval) + _over(interval, cell) + ("?" if cell.doubt else "")


def _over(interval: Interval | None, cell: Cell) -> str:
    """How many seeds an estimate is over, where that is not as many as the line ought to have."""
    return f" ({interval.n})" if interval is not None and interval.n < cell.seeds + cell.missing else ""


def _difference(table: Table, cell: Cell, name: str, metric: Metric) -> str:
    if not cell.differences:
        return "-"
    interval = cell.differences[name]
    nothing_served = cell.stable and cell.metrics[name] is None
    if metric.tail and interval is None and not nothing_served:
        return "unstable"
    stands = name in cell.families and table.reference in cell.families[name].differs_from
    mark = "?" if cell.difference_doubt else "!" if stands else " "
    return with_sides(interval, signed=True) + _over(interval, cell) + mark


def _compared(table: Table) -> bool:
    return any(cell.differences for cell in table.cells)


def _gaps(table: Table) -> list[int]:
    """Rows at which an outer axis changes, if lines stay together: not the last, nor what goes with it."""
    axes = list(table.axes[:-1])
    while axes and _follows(table, axes[-1], table.axes[-1]):
        axes.pop()
    outer = [tuple(cell.axes[axis] for axis in axes) for cell in table.cells]
    return (
        [n for n in range(1, len(outer)) if outer[n] != outer[n - 1]] if len(set(outer)) < len(outer) else []
    )


def _follows(table: Table, axis: str, other: str) -> bool:
    """Whether each value of one axis comes with a single value of another, of which there are several."""
    pairs = {(cell.axes[other], cell.axes[axis]) for cell in table.cells}
    values = len({value for value, _ in pairs})
    return len(pairs) == values and len({value for _, value in pairs}) > 1


DOUBTS = {
    doubts.SHORT: "?: not to be trusted: so close to capacity, some runs are far worse than the others here; "
    "take longer runs or, if that is not enough, a lower load",
    doubts.UNSETTLED: "?: not the steady state: pilot runs did not settle; longer runs may",
}


def _family_notes(table: Table, contrast: Sequence[str]) -> list[str]:
    """How many comparisons a family has, and what it means to stand; nothing where there is no family."""
    sizes = {one.pairs for cell in table.cells for name in contrast if (one := cell.families.get(name))}
    setting = "setting and metric" if len(table.axes) > 1 else "metric"
    if not max(sizes, default=0):
        return []
    return [
        f"!: differs from {table.reference} also when all {max(sizes)} pairs of a {setting} are judged "
        "together (Holm, 5 % for the family)"
    ]


def _notes(table: Table, contrast: Sequence[str]) -> list[str]:
    counts = sorted({cell.seeds for cell in table.cells})
    seeds = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    notes = [
        f"value ± half-width of the 95 % interval over {seeds} seeds (t, adjusted for skewness: +up-down)"
    ]
    notes += table.estimated
    whys = {cell.why for cell in table.cells}
    if "cap" in whys:
        notes.append("*: stopped by the cap on seeds, wider than the target")
    if "running" in whys:
        notes.append("...: seeds are still to come")
    if any(cell.missing for cell in table.cells):
        notes.append("n of m: the other seeds failed, see failed.txt, or are not finished")
    if any(_over(one, c) for c in table.cells for one in (*c.metrics.values(), *c.differences.values())):
        notes.append("(n): over n seeds only, those that have the value, and of a difference on both sides")
    if contrast:
        notes.append(f"Δ: minus {table.reference}, paired by seed on the same workload{_of_both(table)}")
        notes += _family_notes(table, contrast)
    notes += [note for doubt, note in DOUBTS.items() if any(cell.doubt == doubt for cell in table.cells)]
    notes += _load_notes([cell.offered_load for cell in table.cells])
    if not all(cell.stable for cell in table.cells):
        notes.append("unstable: the backlog grows; there is no P99, and a mean depends on the run's length")
    return notes


def _of_both(table: Table) -> str:
    return ", over the seeds that both have" if any(cell.missing for cell in table.cells) else ""


def legend(what: Experiment, names: Iterable[str]) -> list[str]:
    """A line a column that its title does not explain."""
    metrics = [what.metrics[name] for name in names if name in what.metrics]
    return [f"{metric.label}: {metric.doc}" for metric in metrics if metric.doc]


def _short_names(axes: Sequence[str]) -> list[str]:
    """Last words of dotted names, where they stay different."""
    last = [axis.rsplit(".", 1)[-1] for axis in axes]
    return [word if last.count(word) == 1 else axis for word, axis in zip(last, axes, strict=True)]


def heading(sweep: Sweep) -> str:
    """Name and description of a sweep, and what identifies its results."""
    description = f": {sweep.description}" if sweep.description else ""
    return (
        f"{sweep.name}{description}\n"
        f"experiment {sweep.experiment}, seed {sweep.seed}, spec {sweep.spec_hash()[:12]}, "
        f"code {sweep.code_version[:12]}"
    )


# Columns of a replay's table, beside the router.
REPLAY = (
    "latency_mean_s",
    "latency_p99_s",
    "ttft_mean_s",
    "ttft_p99_s",
    "offered_load",
    "hit_rate",
    "copies",
    "load_imbalance",
    "busiest_share",
    "throughput_rps",
)


def replay(found: Replay) -> str:
    """The table of a replay: one run a router, so no intervals."""
    what = experiment("cluster")
    columns = REPLAY if found.sort in REPLAY else (found.sort, *REPLAY)
    rows = [[row["router"], *(_run_value(row, name) for name in columns)] for row in found.rows]
    heads = [what.metrics[name].title().replace("time to first token", "TTFT") for name in columns]
    by = what.metrics[found.sort].label
    notes = [
        f"sorted by {by} (--sort); one run each: differences within a run's noise mean nothing, "
        "a sweep gives intervals"
    ]
    behind = [
        row["router"] for row in found.rows if row["stable"] and not point_is_stable([row["backlog_score"]])
    ]
    if behind:
        notes.append(
            f"below capacity in the mean, but the backlog grew in this run, as in an hour of overload: "
            f"{', '.join(behind)}"
        )
    refused = {row["router"]: row["rejected"] for row in found.rows if row["rejected"]}
    if refused:
        shares = ", ".join(f"{router} {share:.1%}" for router, share in refused.items())
        notes.append(f"refused, and in no other figure: {shares} of the requests")
    if not all(row["stable"] for row in found.rows):
        notes.append("unstable: the backlog grows; there is no P99, and a mean depends on the trace's length")
    notes += [*_load_notes([row["offered_load"] for row in found.rows]), *legend(what, columns)]
    return "\n".join([grid(["router", *heads], rows, left=1), "", *notes])


def _run_value(row: dict[str, Any], name: str) -> str:
    if name == "offered_load":
        return load(row[name])
    return "unstable" if name.endswith("_p99_s") and not row["stable"] else number(row[name])
