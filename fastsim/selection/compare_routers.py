"""All model routers on one table: learnt on one part, measured on the other, with paired intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any

import numpy as np
from msgspec import Meta

from fastsim.selection import route_metrics as measure
from fastsim.selection.model_routers import MODEL_ROUTERS, choose, fit, get, weights
from fastsim.selection.resample import Draws, draw_questions, interval, paired
from fastsim.selection.tables import Floats, Outcomes, Split, split
from fastsim.stats import Interval, PairedInterval
from fastsim.stats.intervals import check_level
from fastsim.typed import Seed, Share, checked

DrawCount = Annotated[int, Meta(ge=1, le=1_000_000)]
POINTS = 60  # settings of a dial
REFERENCE = "random"
ALWAYS = ("oracle", REFERENCE, "best_single")  # what measures refer to

# What is measured. Quality and cost are those of the dearest setting, and so are the gains and RouterArena's
# score; AIQ and the cost saved look at all settings, so for them the dial is set with hindsight.
MEASURES = ("quality", "cost", "gain_at_best", "gap_at_oracle", "aiq", "cost_save", "router_arena")
TWO_MODELS = ("apgr", "apgr_grid", "cpt50", "cpt80")


@dataclass(frozen=True, eq=False)
class Line:
    """A router on the test questions.

    Attributes
    ----------
    name, doc : str
    dial : float64[p]
        Its settings: weights of `choose`, budgets of cascades, places on the hull for random mixing.
    cost, quality : list of Interval
        Means at each setting.
    measures : dict of str to Interval, or None where undefined
        See `MEASURES` and `TWO_MODELS`.
    versus : dict of str to PairedInterval, or None
        The same minus the reference's, on the same bootstrap draws.
    bound : bool
        It sees the outcomes, so it is no router.
    has_dial : bool
        It trades cost for quality; without, it is one point.
    """

    name: str
    doc: str
    dial: Floats
    cost: list[Interval | None]
    quality: list[Interval | None]
    measures: dict[str, Interval | None]
    versus: dict[str, PairedInterval | None]
    bound: bool
    has_dial: bool


@dataclass(frozen=True, eq=False)
class Comparison:
    """All routers on one table.

    Attributes
    ----------
    table : str
    models : dict of str to (Interval, Interval)
        Mean cost and quality of each model on the test questions.
    cost_unit : str
    lines : list of Line
    reference : str
        What differences are taken to.
    questions : (int, int)
        Rows learnt from and tested on.
    draws : int
    notes : tuple of str
        What was assumed, left out, and how it was split.
    """

    table: str
    models: dict[str, tuple[Interval | None, Interval | None]]
    cost_unit: str
    lines: list[Line]
    reference: str
    questions: tuple[int, int]
    draws: int
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain numbers, lists and mappings, for JSON; what is infinite becomes null there."""
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        lines = [
            {field.name: getattr(line, field.name) for field in fields(line)} | {"dial": line.dial.tolist()}
            for line in self.lines
        ]
        models = {name: {"cost": cost, "quality": quality} for name, (cost, quality) in self.models.items()}
        return plain | {"models": models, "lines": lines}


@dataclass(frozen=True, eq=False)
class Curve:
    """A router at p settings of its dial, for each of the n test questions: float64[n, p] each.

    `gain` ranks questions by what the stronger of two models is expected to add, float64[n].
    """

    name: str
    doc: str
    dial: Floats
    cost: Floats
    quality: Floats
    gain: Floats | None = None
    bound: bool = False
    has_dial: bool = True


@checked
def compare(
    table: Outcomes,
    routers: Sequence[str] = (),
    *,
    params: Mapping[str, Mapping[str, Any]] | None = None,
    extra: Callable[[Split], Sequence[Curve]] | None = None,
    test_share: Share = 0.5,
    by: str | None = None,
    draws: DrawCount = 1000,
    level: Share = 0.95,
    seed: Seed = 0,
) -> Comparison:
    """Let routers learn on one part of a table and measure them on the other.

    Parameters
    ----------
    table : Outcomes
    routers : sequence of str, optional
        Names of the registry; by default all that the table has what they need for.
    params : mapping of str to mapping, optional
        Parameters of routers by name.
    extra : callable, optional
        split -> further curves to compare, such as cascades.
    test_share, by, seed
        See `fastsim.selection.tables.split`; `seed` is also that of routers and of the bootstrap.
    draws : int
        Bootstrap draws of test questions.
    level : float

    Returns
    -------
    Comparison
        Intervals cover what other test questions would change, not what other training questions would.

    Raises
    ------
    InputError
        For an unknown router or parameter, or a table without what a router asked for needs.
    """
    check_level(level)
    for name in params or {}:
        get(name)
    chosen = [get(name) for name in routers] or list(MODEL_ROUTERS.values())
    skipped = {} if routers else {entry.name: entry.lacks(table) for entry in chosen if entry.lacks(table)}
    parts = split(table, test_share=test_share, by=by, seed=seed)
    resampled = draw_questions(parts.test.question, draws, seed)
    names = list(dict.fromkeys([*(e.name for e in chosen if e.name not in skipped), *ALWAYS]))
    curves = {name: _curve(name, (params or {}).get(name), seed, parts) for name in names}
    curves |= {curve.name: curve for curve in (extra(parts) if extra else ())}
    found = _Measured(parts, curves, resampled, level)
    wanted = [name for name in curves if not routers or name in routers or name not in names]
    notes = [*parts.notes, *table.assumptions]
    if skipped:
        notes.append(f"{', '.join(skipped)} left out: the table holds no {next(iter(skipped.values()))}")
    return Comparison(
        table.name,
        {model: found.point(column) for column, model in enumerate(table.models)},
        table.cost_unit,
        [found.line(name) for name in wanted],
        REFERENCE,
        (parts.train.size, parts.test.size),
        draws,
        tuple(notes),
    )


def _curve(name: str, params: Mapping[str, Any] | None, seed: int, parts: Split) -> Curve:
    """A router at every setting of its dial, found from its predictions."""
    router, test = fit(name, parts.train, params, seed=seed), parts.test
    entry = router.entry
    if name == REFERENCE:
        return _expected_mix(entry.doc, parts)
    quality = router.quality(test)
    dial = np.zeros(1) if entry.fixed else weights(quality, router.mean_cost, POINTS)
    calls = np.stack([choose(quality, router.mean_cost, weight) for weight in dial], axis=1)
    rows = np.arange(test.size)[:, None]
    gain = None if entry.fixed else _gain(quality, parts)
    cost, score = test.costs[rows, calls], test.scores[rows, calls]
    return Curve(name, entry.doc, dial, cost, score, gain, bound=entry.peeks, has_dial=not entry.fixed)


def _expected_mix(doc: str, parts: Split) -> Curve:
    """Random mixing in expectation, which has no noise of its own: along the hull of the single models."""
    cost, quality = parts.train.costs.mean(axis=0), parts.train.scores.mean(axis=0)
    members = measure.hull_members(cost, quality)[::-1]  # dearest first, as dials are
    steps = max(len(members) - 1, 0)
    places = np.linspace(0.0, steps, 10 * steps + 1)
    share = np.maximum(1.0 - np.abs(places - np.arange(len(members))[:, None]), 0.0)  # of each member
    test, even = parts.test, np.zeros(parts.test.size)
    gain = even if len(cost) == 2 else None
    return Curve(
        REFERENCE, doc, places, test.costs[:, members] @ share, test.scores[:, members] @ share, gain
    )


def _gain(quality: Floats, parts: Split) -> Floats | None:
    if quality.shape[1] != 2:
        return None
    strong = _strong(parts)
    with np.errstate(invalid="ignore"):
        return np.nan_to_num(quality[:, strong] - quality[:, 1 - strong], nan=0.0)


def _strong(parts: Split) -> int:
    """The stronger of two models, where it was learnt."""
    return int(np.argmax(parts.train.scores.mean(axis=0)))


class _Measured:
    """Estimates and bootstrap draws of everything, computed once."""

    def __init__(self, parts: Split, curves: dict[str, Curve], draws: Draws, level: float) -> None:
        self.parts, self.curves, self.draws, self.level = parts, curves, draws, level
        # First row: all questions once. The others: the draws. Every measure is computed on all rows alike.
        every = Draws(draws.cluster, np.vstack([np.ones(draws.clusters), draws.count]))
        self.all = every
        self.cost = {name: every.means(curve.cost) for name, curve in curves.items()}
        self.quality = {name: every.means(curve.quality) for name, curve in curves.items()}
        self.model_cost, self.model_quality = every.means(parts.test.costs), every.means(parts.test.scores)
        self.most = np.max(
            [self.model_cost.max(axis=1), *(c.max(axis=1) for c in self.cost.values())], axis=0
        )
        self.values = {name: self._measures(curve) for name, curve in curves.items()}

    def point(self, column: int) -> tuple[Interval | None, Interval | None]:
        return self._interval(self.model_cost[:, column]), self._interval(self.model_quality[:, column])

    def line(self, name: str) -> Line:
        curve, mine, theirs = self.curves[name], self.values[name], self.values[REFERENCE]
        return Line(
            name,
            curve.doc,
            curve.dial,
            [self._interval(column) for column in self.cost[name].T],
            [self._interval(column) for column in self.quality[name].T],
            {what: self._interval(values) for what, values in mine.items()},
            {what: self._paired(values, theirs[what]) for what, values in mine.items() if what in theirs},
            curve.bound,
            curve.has_dial,
        )

    def _interval(self, values: Floats) -> Interval | None:
        return interval(float(values[0]), values[1:], self.draws.clusters, self.level)

    def _paired(self, a: Floats, b: Floats) -> PairedInterval | None:
        return paired(float(a[0]), a[1:], float(b[0]), b[1:], self.draws.clusters, self.level)

    def _measures(self, curve: Curve) -> dict[str, Floats]:
        cost, quality = self.cost[curve.name], self.quality[curve.name]
        best_cost, best = self.cost["best_single"][:, 0], self.quality["best_single"][:, 0]
        oracle = self.quality["oracle"].max(axis=1)
        rows = range(len(cost))
        found = {
            "quality": quality[:, 0],
            "cost": cost[:, 0],
            "gain_at_best": measure.gain_at_baseline(quality[:, 0], best),
            "gap_at_oracle": measure.gap_at_oracle(quality[:, 0], oracle),
        }
        if curve.has_dial:
            found["aiq"] = np.array([measure.aiq(cost[r], quality[r], self.most[r]) for r in rows])
            found["cost_save"] = np.array(
                [measure.cost_save(cost[r], quality[r], best_cost[r], best[r]) for r in rows]
            )
        if self.parts.test.cost_unit == "$" and self.parts.test.score_range[1] == 1.0:
            found["router_arena"] = measure.router_arena(quality[:, 0], 1000.0 * cost[:, 0])
        found |= self._two_models(curve)
        # Equal means may differ by rounding; costs are too small to round. Adding 0 makes 0 of -0.
        rounded = {what: np.round(values, 12) + 0.0 for what, values in found.items()}
        return rounded | {"cost": found["cost"]}

    def _two_models(self, curve: Curve) -> dict[str, Floats]:
        if curve.gain is None:
            return {}
        strong = _strong(self.parts)
        scores = self.parts.test.scores
        line = measure.strong_curve(curve.gain, scores[:, 1 - strong], scores[:, strong], self.all.weight)
        return {
            "apgr": measure.apgr(line),
            "apgr_grid": measure.apgr_grid(line),
            "cpt50": measure.cpt(line, 0.5),
            "cpt80": measure.cpt(line, 0.8),
        }
