"""How many seeds each block of cells needs: a fixed number, or until its intervals are narrow enough."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastsim.stats import mean_interval
from fastsim.sweep import params as P
from fastsim.sweep.points import Block
from fastsim.sweep.spec import Stop, Sweep

if TYPE_CHECKING:
    import polars as pl

# Values of the watched metric by replicate, for each cell (named by its canonical parameters).
Observed = Mapping[str, Mapping[int, float | None]]


@dataclass(frozen=True)
class Verdict:
    """Seeds a block needs, from replicate 0 on, and why.

    Attributes
    ----------
    seeds : int
    why : {"fixed", "target", "cap", "running"}
        Given in the sweep; every stable cell reached the target; the cap came first; not enough known yet.
    """

    seeds: int
    why: str


def observed(sweep: Sweep, rows: pl.DataFrame) -> Observed:
    """The watched metric of all rows; None where the replicate was unstable."""
    found: dict[str, dict[int, float | None]] = {}
    if sweep.stop is None or rows.is_empty():
        return found
    columns = ["params", "replicate", sweep.stop.metric, *(["stable"] if "stable" in rows.columns else [])]
    for cell, replicate, value, *stable in rows.select(columns).iter_rows():
        found.setdefault(cell, {})[replicate] = value if all(stable) else None
    return found


def verdict(sweep: Sweep, block: Block, values: Observed) -> Verdict:
    """Law's sequential rule, replayed from the start, so that it depends on the results alone.

    All cells of a block get the same seeds: the comparison is paired. Seeds are added in batches until each
    cell's half-width is at most eps / (1 + eps) of its value, which makes the relative *error* at most eps
    (Law, Simulation Modeling and Analysis, section 9.4.1). A cell with an unstable replicate has no value to
    wait for.
    """
    stop = sweep.stop
    if stop is None:
        return Verdict(sweep.seeds, "fixed")
    cells = [values.get(P.text(cell), {}) for cell in block.cells]
    seeds = stop.min_seeds
    while all(replicate in cell for cell in cells for replicate in range(seeds)):
        if all(narrow_enough([cell[r] for r in range(seeds)], stop) for cell in cells):
            return Verdict(seeds, "target")
        if seeds >= stop.max_seeds:
            return Verdict(seeds, "cap")
        seeds = min(seeds + stop.batch, stop.max_seeds)
    return Verdict(seeds, "running")


def narrow_enough(values: list[float | None], stop: Stop) -> bool:
    """Whether a cell's interval needs no more seeds."""
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return True
    return mean_interval(known).relative_half_width <= stop.rel_half_width / (1 + stop.rel_half_width)
