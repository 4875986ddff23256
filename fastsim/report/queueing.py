"""Answers to queueing questions as text, with theory beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastsim.report.text import grid, number, with_half_width

if TYPE_CHECKING:
    from fastsim.queueing import BallsResult, QueueResult
    from fastsim.stats import Interval

TIME = "mean service times"


def queue(result: QueueResult) -> str:
    """The table of a `QueueResult`: a line a measure, with its interval and what a formula says."""
    theory = result.theory
    formulas = (theory.response_mean, theory.wait_mean) if theory else (None, None)
    laws = (theory.response or {}, theory.wait or {}) if theory else ({}, {})
    lines: list[tuple[str, Interval | None, float | None]] = []
    for name, measure, mean, law in zip(
        ("response", "wait"), (result.response, result.wait), formulas, laws, strict=True
    ):
        if measure is not None:
            lines.append((f"mean {name}", measure.mean, mean))
            lines += [(f"P{100 * p:g} {name}", q, law.get(p)) for p, q in measure.quantiles.items()]
    if result.no_wait is not None:
        lines.append(("fraction served at once", result.no_wait, None))
    lines.append(("requests a server", result.queue_length, None))
    lines.append(("idle fraction", result.idle_probability, None))
    rows = [[name, with_half_width(interval), number(value)] for name, interval, value in lines]
    title = _question(result)
    return "\n".join([title, "", grid(["", "simulated", "theory"], rows, left=1), "", *_notes(result)])


def _question(result: QueueResult) -> str:
    spec = result.spec
    choices = f" (d = {spec.d})" if "d" in spec.dispatcher.takes else ""
    update = spec.update if spec.update in ("live", "own") else f"{spec.update} update, T = {spec.period:g}"
    same = abs(result.offered_load - spec.utilisation) <= 1e-9 * spec.utilisation
    load = "" if same else f" (offered load over what the dispatcher can use {result.offered_load:.4g})"
    return (
        f"{spec.servers:,} {spec.discipline.upper()} servers, {spec.dispatcher.name}{choices}, "
        f"utilisation {spec.utilisation:.4g}{load}, {spec.size.name} sizes, {spec.arrivals.name} arrivals, "
        f"{update}"
    )


def _notes(result: QueueResult) -> list[str]:
    level = f"{100 * result.response.mean.level:g} % interval"
    runs = f"{result.replications} runs of {result.requests:,} requests after {result.warmup:,} left out"
    mean = result.spec.size.mean
    unit = TIME if mean == 1.0 else f"the unit of the sizes, of mean {mean:.4g}"
    notes = [f"value ± half-width of the {level} over {runs}", f"times in {unit}"]
    if result.theory:
        notes.append(f"theory: {result.theory.model} ({result.theory.kind})")
    if result.reached is False:
        notes.append("stopped by the cap on replications, wider than the relative half-width asked for")
    return [*notes, *result.notes]


def balls(result: BallsResult) -> str:
    """The fullest bin: mean, theory, and how often it held how much."""
    shown = result.distribution if (result.maxima % 1.0 == 0.0).all() else {}
    law = result.theory.law if result.theory else None
    rows = [["mean", with_half_width(result.mean), number(law and law.mean)]]
    rows += [
        [f"P(fullest = {most:g})", f"{share:.4f}", f"{law.pmf(int(most)):.4f}" if law else "-"]
        for most, share in shown.items()
    ]
    title = (
        f"{result.balls:,} balls into {result.bins:,} bins, {result.choices} "
        f"choice{'s' * (result.choices > 1)}: the fullest bin"
    )
    notes = [
        f"value ± half-width of the {100 * result.mean.level:g} % interval over {result.trials:,} trials"
    ]
    if result.theory:
        notes.append(f"theory: {result.theory.kind}")
        if result.theory.asymptotic is not None:
            notes.append(f"leading term for large n: {result.theory.asymptotic:.3f}")
    return "\n".join([title, "", grid(["", "simulated", "theory"], rows, left=1), "", *notes])
