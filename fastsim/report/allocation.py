"""An allocation chosen from a table: as text, and as a picture of accuracy against cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fastsim.report.draw import COLOURS, LOG_SPREAD
from fastsim.report.text import grid, number, with_half_width

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from fastsim.selection.choose import Choice, Judged

SHOWN = 20  # lines of a frontier
LABELLED = 12  # single models that all get a name in the picture


def text(choice: Choice) -> str:
    """The rows, the allocations module by module, the frontier, and what was assumed."""
    unit = choice.cost_unit
    header = ["", "accuracy", "over single", "searched on", f"cost ({unit}/question)"]
    rows = [[row.label, *_figures(row)] for row in choice.rows]
    modules = [
        [module, *(choice.models[row.allocation[slot]] for row in choice.rows)]
        for slot, module in enumerate(choice.system.slot_names)
    ]
    front = [[_short(choice, row), *_figures(row)] for row in _thinned(choice.frontier)]
    left_out = len(choice.frontier) - len(front)
    found = choice.found
    parts = [
        f"{choice.system.name}: {len(choice.models)} models in {len(choice.system.slots)} modules",
        "",
        grid(header, rows, left=1),
        "",
        grid(["module", *(row.label for row in choice.rows)], modules, left=len(choice.rows) + 1),
        "",
        "Pareto frontier of cost and accuracy" + (f", {left_out} of its points left out" if left_out else ""),
        grid(["models, module by module", *header[1:]], front, left=1),
        "",
        *_legend(choice),
        f"{found.searcher} evaluated {found.evaluated:,.10g} allocations: {found.model_calls:,} calls of "
        f"models for {number(found.money)} {unit}, {found.diagnoses:,} diagnoses"
        + ("; it did not settle before its budget or limit" if found.exhausted else ""),
        *choice.notes,
    ]
    return "\n".join(parts)


def _figures(row: Judged) -> list[str]:
    return [
        with_half_width(row.accuracy),
        with_half_width(row.gain, signed=True),
        f"{row.train_accuracy:.3f}",
        number(row.cost),
    ]


def _legend(choice: Choice) -> list[str]:
    n = choice.rows[0].accuracy.n
    used = sorted({k for row in _thinned(choice.frontier) for k in row.allocation})
    numbered = [f"{k} {choice.models[k]}" for k in used]
    return [
        f"accuracy, over single: on {n:,} questions that nothing was chosen by, ± half-width of the 95 % "
        "interval; over single is paired by question",
        "searched on: accuracy on the questions it was chosen by, too high for that reason",
        f"models: {', '.join(numbered)}",
    ]


def _short(choice: Choice, row: Judged) -> str:
    return " ".join(str(k) for k in row.allocation)


def _thinned(rows: Sequence[Judged]) -> list[Judged]:
    """At most `SHOWN` rows, spread evenly, both ends kept."""
    if len(rows) <= SHOWN:
        return list(rows)
    return [rows[round(i * (len(rows) - 1) / (SHOWN - 1))] for i in range(SHOWN)]


def picture(choice: Choice, table: str) -> Figure:
    """Accuracy against cost: single models, the frontier with its band, and what was chosen."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine
    from matplotlib.ticker import LogLocator, NullFormatter

    figure = Figure(figsize=(8.0, 5.0), layout=ConstrainedLayoutEngine(rect=(0, 0.03, 1, 0.97)))
    axes = figure.subplots()
    _frontier(axes, choice.frontier)
    _singles(axes, choice.singles)
    for place, row in enumerate(choice.rows[1:]):
        error = [[row.accuracy.value - row.accuracy.low], [row.accuracy.high - row.accuracy.value]]
        axes.errorbar(
            row.cost,
            row.accuracy.value,
            yerr=error,
            color=COLOURS[(5, 3, 6)[place % 3]],
            marker="*PX"[place % 3],
            markersize=11,
            capsize=3,
            linestyle="none",
            label=row.label,
            zorder=4,
        )
    costs = [row.cost for row in (*choice.frontier, *choice.singles, *choice.rows)]
    if min(costs) > 0.0 and max(costs) > LOG_SPREAD * min(costs):
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel(f"cost ({choice.cost_unit}/question)")
    axes.set_ylabel("accuracy on questions that nothing was chosen by")
    axes.grid(alpha=0.25)
    figure.suptitle(f"{choice.system.name} on {table}")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    figure.text(
        0.005, 0.005, "bands and bars: pointwise 95 % intervals over questions", fontsize=7, color="0.4"
    )
    return figure


def _frontier(axes: Axes, rows: Sequence[Judged]) -> None:
    costs = [row.cost for row in rows]
    middle = [row.accuracy.value for row in rows]
    low, high = [row.accuracy.low for row in rows], [row.accuracy.high for row in rows]
    axes.plot(costs, middle, color=COLOURS[4], marker=".", linewidth=1.2, label="Pareto frontier", zorder=2)
    axes.fill_between(costs, low, high, color=COLOURS[4], alpha=0.15, linewidth=0)


def _singles(axes: Axes, rows: Sequence[Judged]) -> None:
    """Single models as grey points, with names while there is room, else the most accurate only."""
    costs, values = [row.cost for row in rows], [row.accuracy.value for row in rows]
    axes.plot(costs, values, "o", color=COLOURS[7], markersize=4, label="one model everywhere", zorder=3)
    named = rows if len(rows) <= LABELLED else [max(rows, key=lambda row: row.accuracy.value)]
    middle = (min(costs) * max(costs)) ** 0.5
    for row in named:
        side, shift = ("right", -4) if row.cost > middle else ("left", 4)
        place = (row.cost, row.accuracy.value)
        axes.annotate(
            row.label, place, (shift, -9), textcoords="offset points", fontsize=6, color="0.35", ha=side
        )
