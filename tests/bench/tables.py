"""What benchmarks print: tables that line up, verdicts beside targets; the same as JSON in results/bench."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.bench.measure import ROOT

RESULTS = ROOT / "results" / "bench"

Cell = str | int | float | None
Row = Mapping[str, Cell]


@dataclass(frozen=True)
class Target:
    """A figure to be reached: at least, or at most, so much."""

    limit: float
    at_least: bool = False

    def __str__(self) -> str:
        return f"{'>=' if self.at_least else '<='} {number(self.limit)}"

    def verdict(self, value: float) -> str:
        """Say `met`, or by what factor it is missed."""
        over = self.limit / value if self.at_least else value / self.limit
        return "met" if over <= 1.0 else f"missed by {over:.2f}x"


def judged(row: dict[str, Cell], value: float, target: Target | None) -> dict[str, Cell]:
    """Add the target and the verdict on `value` to a row; both are empty where there is no target."""
    return row | {"target": str(target) if target else "", "verdict": target.verdict(value) if target else ""}


def number(value: Cell) -> str:
    """Three significant digits, thousands and millions by name."""
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    for unit, size in (("M", 1e6), ("k", 1e4)):
        if abs(value) >= size:
            return f"{value / (1e3 if unit == 'k' else size):.3g} {unit}"
    return f"{value:,.0f}" if isinstance(value, int) or abs(value) >= 1e3 else f"{value:.3g}"


def show(name: str, title: str, rows: Sequence[Row]) -> None:
    """Print rows as a table and write them, unrounded, to results/bench/<name>.json."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    cells = [columns] + [[number(row.get(column)) for column in columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    words = [all(isinstance(row.get(column, ""), str) for row in rows) for column in columns]
    print(f"\n\n{title}{_busy()}")
    for line in cells:
        parts = zip(line, widths, words, strict=True)
        print("  ".join(cell.ljust(w) if word else cell.rjust(w) for cell, w, word in parts).rstrip())
    _save(name, title, rows)


def _busy() -> str:
    """A warning if others use the machine: times by the clock mean little then, and caches are shared."""
    load, cores = _load(), os.cpu_count() or 1
    return (
        f" - on a busy machine, load {load[0]:.1f} on {cores} cores" if load and load[0] > cores + 0.5 else ""
    )


def _load() -> tuple[float, ...]:
    return os.getloadavg() if hasattr(os, "getloadavg") else ()


def _save(name: str, title: str, rows: Sequence[Row]) -> None:
    import numba
    import numpy

    from fastsim._jit import SOURCE_DIGEST

    where: dict[str, Any] = {
        "time": time.strftime("%Y-%m-%dT%H:%M:%S"),
        "machine": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "load": _load(),
        "versions": {
            "python": platform.python_version(),
            "numba": numba.__version__,
            "numpy": numpy.__version__,
        },
        "sources": SOURCE_DIGEST,
    }
    RESULTS.mkdir(parents=True, exist_ok=True)
    content = {"title": title, **where, "rows": [dict(row) for row in rows]}
    (RESULTS / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")
