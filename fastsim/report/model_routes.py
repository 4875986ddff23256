"""Model routers compared: as text, and as a picture of quality against cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fastsim.report.draw import LOG_SPREAD, style
from fastsim.report.text import grid, with_half_width
from fastsim.stats import Interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fastsim.selection.compare_routers import Comparison, Line

LABELLED = 12  # single models that all get a name in the picture
PER = {"$": 1000.0}  # dollars are given for so many questions

AIQ = "AIQ: area under quality against cost, over the largest cost, the dial set in hindsight for all alike"
SAVED = "saved: cost below the best single model's at its quality, likewise (-: never; ± ?: not always)"
TWO_MODELS = (
    "APGR: area under the performance gap recovered, over the share of strong calls; CPT(x): least share of "
    "strong calls that recovers x"
)


def text(found: Comparison) -> str:
    """The table of routers, for two models RouteLLM's measures too, and what was assumed."""
    learnt, tested = found.questions
    level = next(iter(found.models.values()))[1]
    title = f"{found.table}: {len(found.models)} models, learnt on {learnt:,} rows, tested on {tested:,}"
    parts = [title, "", _models(found), "", _routers(found), ""]
    pairs = [line for line in found.lines if "apgr" in line.measures]
    if pairs:
        parts += [_pairs(found, pairs), ""]
    parts += [
        f"value ± half of the {100 * (level.level if level else 0.95):g} % bootstrap interval over test "
        f"questions ({found.draws:,} draws), what was learnt held fixed; limits with --json",
        f"Δ: minus {found.reference}, on the same draws",
        "quality, cost, gap to oracle: with the dial at its dearest",
        AIQ,
        SAVED,
        *([TWO_MODELS] if pairs else []),
        *found.notes,
    ]
    return "\n".join(parts)


def _models(found: Comparison) -> str:
    rows = [[name, _text(quality), _cost(found, cost)] for name, (cost, quality) in found.models.items()]
    return grid(["model", "quality", f"cost ({_unit(found)})"], rows, left=1)


def _routers(found: Comparison) -> str:
    header = ["router", "quality", f"cost ({_unit(found)})", "gap to oracle (%)", "AIQ", "Δ AIQ", "saved (%)"]
    rows = [
        [
            line.name,
            _text(line.measures["quality"]),
            _cost(found, line.measures["cost"]),
            _text(line.measures["gap_at_oracle"], 100.0),
            _text(line.measures.get("aiq")),
            _text(line.versus.get("aiq"), signed=True),
            _text(line.measures.get("cost_save"), 100.0),
        ]
        for line in found.lines
    ]
    return grid(header, rows, left=1)


def _pairs(found: Comparison, lines: Sequence[Line]) -> str:
    header = ["router", "APGR", "Δ APGR", "CPT(50 %) (%)", "CPT(80 %) (%)", "Δ CPT(50 %) (%)"]
    rows = [
        [
            line.name,
            _text(line.measures["apgr"]),
            _text(line.versus["apgr"], signed=True),
            _text(line.measures["cpt50"], 100.0),
            _text(line.measures["cpt80"], 100.0),
            _text(line.versus["cpt50"], 100.0, signed=True),
        ]
        for line in lines
    ]
    return grid(header, rows, left=1)


def _text(interval: Interval | None, factor: float = 1.0, *, signed: bool = False) -> str:
    return with_half_width(_scaled(interval, factor), signed=signed)


def _scaled(interval: Interval | None, factor: float) -> Interval | None:
    if interval is None:
        return None
    value, low, high = (factor * x for x in (interval.value, interval.low, interval.high))
    return Interval(value, low, high, interval.n, interval.level)


def _cost(found: Comparison, interval: Interval | None) -> str:
    return _text(interval, PER.get(found.cost_unit, 1.0))


def _unit(found: Comparison) -> str:
    return f"{found.cost_unit}/1,000 questions" if found.cost_unit in PER else f"{found.cost_unit}/question"


def picture(found: Comparison) -> Figure:
    """Quality against cost: a line with its band for every router with a dial, a cross for every model."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine
    from matplotlib.ticker import LogLocator, NullFormatter

    figure = Figure(figsize=(9.0, 5.2), layout=ConstrainedLayoutEngine(rect=(0, 0.03, 1, 0.97)))
    axes = figure.subplots()
    factor = PER.get(found.cost_unit, 1.0)
    lines = [line for line in found.lines if line.has_dial]
    for place, line in enumerate(lines):
        _draw(axes, line, factor, style(place))
    _draw_models(axes, found, factor)
    costs = [factor * cost.value for cost, _ in found.models.values() if cost]
    if min(costs) > 0.0 and max(costs) > LOG_SPREAD * min(costs):
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel(f"mean cost ({_unit(found)})")
    axes.set_ylabel("mean quality")
    axes.grid(alpha=0.25)
    figure.suptitle(f"{found.table}: model routers on {found.questions[1]:,} test questions")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside right center", frameon=False)
    level = next((line.quality[0].level for line in lines if line.quality[0]), 0.95)
    note = f"bands: pointwise {100 * level:g} % bootstrap intervals of quality over questions"
    figure.text(0.005, 0.005, note, fontsize=7, color="0.4")
    return figure


def _draw(axes: Any, line: Line, factor: float, look: dict[str, Any]) -> None:
    points = sorted(
        (factor * cost.value, quality.value, quality.low, quality.high)
        for cost, quality in zip(line.cost, line.quality, strict=True)
        if cost and quality
    )
    x, y, low, high = zip(*points, strict=True)
    label = f"{line.name} (sees outcomes)" if line.bound else line.name
    every = max(1, len(points) // 8)
    axes.plot(x, y, label=label, linewidth=1.5, markersize=4, markevery=every, **look)
    axes.fill_between(x, low, high, color=look["color"], alpha=0.10, linewidth=0)


def _draw_models(axes: Any, found: Comparison, factor: float) -> None:
    from matplotlib.patheffects import withStroke

    known = [(name, cost, q) for name, (cost, q) in found.models.items() if cost and q]
    x, y = [factor * cost.value for _, cost, _ in known], [quality.value for _, _, quality in known]
    axes.plot(x, y, "x", color="0.3", markersize=7, linestyle="none", label="single models", zorder=5)
    if len(known) > LABELLED:
        return
    clear = [withStroke(linewidth=2, foreground="white")]  # names stay legible on lines
    for at, (name, _, _) in enumerate(known):
        side, shift = ("right", -4) if x[at] > (min(x) * max(x)) ** 0.5 else ("left", 4)
        place = (x[at], y[at])
        text = axes.annotate(
            name, place, (shift, -9), textcoords="offset points", fontsize=7, ha=side, zorder=6
        )
        text.set_path_effects(clear)
